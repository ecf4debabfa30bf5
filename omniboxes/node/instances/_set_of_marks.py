"""Marks: numbered labels on what can be acted upon, and the way back from a label to its element.

The page script keeps label and element together in an isolated world of the document, so a label
cannot outlive its document, and an element that left it is never mistaken for another one. A page
without frames of another origin is marked in one call. Otherwise each such frame has a world of its
own: all are surveyed, what the page above covers is left out, and the numbers are given in one go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omniboxes.errors import NotInteractable, StaleMark
from omniboxes.node.instances._playwright_controller import ContextLost, Tab, TabClosed
from omniboxes.node.instances._types import ImageOptions, Point, Shot

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_INFO = {"error": "No screenshot info available"}
MAX_FOREIGN_FRAMES = 20
_KINDS = ("visible", "listed", "above", "below")
_AGAIN = "take a new set_of_marks screenshot and use its labels"


@dataclass(slots=True)
class _World:
    """Our script in one document: the top one, or a frame of another origin than its parent."""

    frame: str
    context: int
    parent: _World | None = None
    index: int = 0  # of the frame's element among the parent's foreign frames
    found: dict[str, Any] = field(default_factory=dict)
    keep: list[bool] | None = None

    def boxes(self) -> list[list[float]]:
        visible: list[list[float]] = self.found["visible"]
        return (
            visible
            if self.keep is None
            else [b for b, k in zip(visible, self.keep, strict=True) if k]
        )

    def count(self, kind: str) -> int:
        return len(self.boxes()) if kind == "visible" else int(self.found[kind])


class Marks:
    """The labels of one tab, from a marked screenshot to the next one."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._worlds: list[_World] = []
        self._owner: dict[str, _World] = {}
        self._next = 1

    async def capture(self, options: ImageOptions) -> Shot:
        """Label what is on screen, and take the screenshot with the labels drawn on it."""
        marks = await self._mark()
        try:
            image = await self._tab.capture(options)
        finally:
            await self._erase()
        return Shot(image, marks)

    async def info(self) -> dict[str, Any]:
        """Return what the last marked screenshot of this document showed."""
        merged: dict[str, Any] = {}
        for world in self._worlds:
            if self._tab.has_world(world.frame, world.context):
                shown = await self._tab.call("omnibox.screenshotInfo()", world.frame)
                _merge(merged, shown or {})
        if not merged:
            return NO_INFO
        return {**merged, "id_mapping": {label: label for label in self._owner}}

    async def rects(self) -> dict[str, Any]:
        """Return the interactive elements of the page as it is now, without spoiling labels."""
        worlds = await self._survey_all()
        regions: dict[str, Any] = {}
        for world in worlds:
            call = f"omnibox.extend({json.dumps(world.keep)}, {self._next})"
            extended = await self._tab.call(call, world.frame)
            self._next = extended["next"]
            regions.update(extended["regions"])
            self._owner.update(dict.fromkeys(extended["regions"], world))
        self._worlds = worlds
        return regions

    async def locate(self, label: str) -> tuple[Point, str]:
        """Return where a click on the label goes and what it is, scrolled into view."""
        world = self._world_of(label)
        await self._rebase(world)
        found = await self.call("locate", label)
        if world.parent is not None:
            # Scrolling it into view may have moved the frames around it.
            await self._rebase(world)
            found = await self.call("locate", label)
            if not await self._reaches(world, found["x"], found["y"]):
                raise _problem(label, {"problem": "covered", "by": ""})
        return Point(found["x"], found["y"]), str(found["kind"])

    async def call(self, function: str, label: str, *arguments: str) -> dict[str, Any]:
        """Call a function of the page script on a label; raises StaleMark or NotInteractable."""
        world = self._world_of(label)
        written = ", ".join(json.dumps(argument) for argument in (label, *arguments))
        try:
            found: dict[str, Any] = await self._tab.call(
                f"omnibox.{function}({written})", world.frame
            )
        except ContextLost as exc:
            raise _problem(label, {"problem": "gone"}) from exc
        if "problem" in found:
            raise _problem(label, found)
        return found

    # Marking.

    async def _mark(self) -> dict[str, Any]:
        top = _World(self._tab.main_frame, await self._tab.world(self._tab.main_frame))
        answer = await self._tab.call("omnibox.mark()")
        if "marks" in answer:
            return self._remember([top], answer["marks"])
        worlds = await self._survey_frames(top, answer["surveyed"])
        first = dict(zip(_KINDS, _starts(worlds), strict=True))
        merged: dict[str, Any] = {}
        boxes: list[list[float]] = []
        for world in worlds:
            boxes += [[first["visible"] + n, *box] for n, box in enumerate(world.boxes())]
            call = f"omnibox.number({json.dumps(world.keep)}, {json.dumps(first)})"
            numbered = await self._tab.call(call, world.frame)
            self._owner.update(dict.fromkeys(_labels(numbered), world))
            _merge(merged, numbered)
            for kind in _KINDS:
                first[kind] += world.count(kind)
        await self._tab.call(f"omnibox.draw({json.dumps(boxes)})")
        return self._remember(worlds, merged)

    def _remember(self, worlds: list[_World], marks: dict[str, Any]) -> dict[str, Any]:
        labels = _labels(marks)
        self._owner = {label: self._owner.get(label, worlds[0]) for label in labels}
        if len(worlds) == 1:
            self._owner = dict.fromkeys(labels, worlds[0])
        self._worlds = worlds
        self._next = len(labels) + 1
        return marks

    async def _erase(self) -> None:
        try:
            await self._tab.call("omnibox.erase()")
        except (ContextLost, TabClosed):
            return  # the marks went with their document

    # Frames of another origin.

    async def _survey_all(self) -> list[_World]:
        top = _World(self._tab.main_frame, await self._tab.world(self._tab.main_frame))
        return await self._survey_frames(top, await self._tab.call("omnibox.survey(null)"))

    async def _survey_frames(self, top: _World, found: dict[str, Any]) -> list[_World]:
        top.found = found
        worlds = [top]
        for parent in worlds:  # grows while it is walked: frames within frames
            for entry in parent.found["foreign"]:
                if len(worlds) > MAX_FOREIGN_FRAMES:
                    break
                try:
                    worlds.append(await self._survey_frame(parent, entry))
                except ContextLost:
                    continue  # a frame that is just being replaced has nothing to show
        return worlds

    async def _survey_frame(self, parent: _World, entry: dict[str, Any]) -> _World:
        index = entry["index"]
        frame = await self._tab.frame_behind(f"omnibox.foreignElement({index})", parent.frame)
        world = _World(frame, await self._tab.world(frame), parent, index)
        world.found = await self._tab.call(f"omnibox.survey({json.dumps(entry['frame'])})", frame)
        middles = [[(b[0] + b[2]) / 2, (b[1] + b[3]) / 2] for b in world.found["visible"]]
        world.keep = [True] * len(middles)
        above: _World | None = world
        while above is not None and above.parent is not None:
            call = f"omnibox.reaches({above.index}, {json.dumps(middles)})"
            reached = await self._tab.call(call, above.parent.frame)
            world.keep = [kept and hit for kept, hit in zip(world.keep, reached, strict=True)]
            above = above.parent
        return world

    async def _rebase(self, world: _World) -> None:
        if world.parent is None:
            return
        await self._rebase(world.parent)
        frame = await self._tab.call(f"omnibox.geometry({world.index})", world.parent.frame)
        await self._tab.call(f"omnibox.rebase({json.dumps(frame)})", world.frame)

    async def _reaches(self, world: _World, x: float, y: float) -> bool:
        while world.parent is not None:
            call = f"omnibox.reaches({world.index}, [[{x}, {y}]])"
            (reached,) = await self._tab.call(call, world.parent.frame)
            if not reached:
                return False
            world = world.parent
        return True

    def _world_of(self, label: str) -> _World:
        world = self._owner.get(label)
        if world is None:
            raise _problem(label, {"problem": "unknown"})
        while True:
            if not self._tab.has_world(world.frame, world.context):
                raise _problem(label, {"problem": "gone"})
            if world.parent is None:
                return self._owner[label]
            world = world.parent


def _starts(worlds: list[_World]) -> list[int]:
    starts, start = [], 1
    for kind in _KINDS:
        starts.append(start)
        start += sum(world.count(kind) for world in worlds)
    return starts


def _labels(marks: Mapping[str, Any]) -> list[str]:
    return [*marks["visible_rects"], *marks["rects_above"], *marks["rects_below"]]


def _merge(into: dict[str, Any], marks: Mapping[str, Any]) -> None:
    for name, value in marks.items():
        if isinstance(value, list):
            into[name] = [*into.get(name, []), *value]
        else:
            into[name] = {**into.get(name, {}), **value}


def _problem(label: str, found: Mapping[str, Any]) -> StaleMark | NotInteractable:
    match found["problem"]:
        case "unknown":
            return StaleMark(f"id: {label} is not a mark of the last screenshot; {_AGAIN}")
        case "gone":
            return StaleMark(f"id: the element of mark {label} is no longer in the page; {_AGAIN}")
        case "disabled":
            return NotInteractable(f"id: the element of mark {label} is disabled")
        case _:
            by = f" by {found['by']}" if found.get("by") else ""
            return NotInteractable(f"id: the element of mark {label} is covered or hidden{by}")
