"""Marks: numbered labels on what can be acted upon, and the way back from a label to its element.

The page script keeps label and element together in an isolated world of the document, so a label
cannot outlive its document, and an element that left it is never mistaken for another one. A page
without frames of another origin is marked in one call. Otherwise each such frame has a world of its
own: all are surveyed, what the page above covers is left out, and the numbers are given in one go.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from omniboxes.errors import InvalidRequest, NotInteractable, StaleMark
from omniboxes.node.instances._playwright_controller import ContextLost, Tab, TabClosed
from omniboxes.node.instances._types import ImageOptions, Point, Shot

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

T = TypeVar("T")

NO_INFO = {"error": "No screenshot info available"}
MAX_FOREIGN_FRAMES = 20
ERASE_LIMIT_S = 1.0
_MAX_KNOWN_FRAMES = 1000
_KINDS = ("listed", "above", "below")
_AGAIN = "take a new set_of_marks screenshot and use its labels"


class Located(NamedTuple):
    """Where a click on a mark goes, and what kind of element it is.

    Kinds other than tag names: `picker` takes its value as a whole, `listed` is an option whose
    closed list the point is on.
    """

    point: Point
    kind: str


@dataclass(slots=True)
class _World:
    """Our script in one document: the top one, or a frame of another origin than its parent."""

    frame: str
    context: int
    parent: _World | None = None
    index: int = 0  # of the frame's element among the parent's foreign frames
    at: int = 0  # how many visible elements of the parent come before it
    found: dict[str, Any] = field(default_factory=dict)
    keep: list[bool] = field(default_factory=list)
    inner: list[_World] = field(default_factory=list)

    @property
    def boxes(self) -> list[list[float]]:
        visible: list[list[float]] = self.found["visible"]
        return visible

    def in_order(self) -> Iterator[tuple[_World, int]]:
        """Yield the visible elements as they are met reading the page, frames in their places."""
        inner = iter(self.inner)
        frame = next(inner, None)
        for index in range(len(self.boxes) + 1):
            while frame is not None and frame.at <= index:
                yield from frame.in_order()
                frame = next(inner, None)
            if index < len(self.boxes) and self.keep[index]:
                yield self, index


class Marks:
    """The labels of one tab, from a marked screenshot to the next one."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._shown: dict[str, Any] = {}  # what the last marked screenshot showed
        self._worlds: list[_World] = []  # the documents that it showed
        self._owner: dict[str, _World] = {}
        self._next = 1
        self._frame_ids: dict[str, str] = {}
        self._is_drawn = False

    async def capture(self, options: ImageOptions) -> Shot:
        """Take a screenshot; a marked one labels what is on screen and shows the labels."""
        if not options.marked:
            if self._is_drawn:
                await self._erase()
            return Shot(await self._tab.capture(options), None)
        try:
            self._is_drawn = True
            marks = await self._mark()
            image = await self._tab.capture(options)
        finally:
            await self._erase()
        return Shot(image, marks)

    async def info(self) -> dict[str, Any]:
        """Return what the last marked screenshot of this document showed."""
        offscreen = await self._tab.call("omnibox.offscreen()")
        if offscreen is None or not self._worlds:
            return NO_INFO
        for world in self._worlds[1:]:
            offscreen.update(await self._offscreen(world))
        regions = {**self._shown["interactive_regions"], **offscreen}
        return {
            **self._shown,
            "interactive_regions": regions,
            "id_mapping": {label: label for label in _labels(self._shown)},
        }

    async def rects(self) -> dict[str, Any]:
        """Return the interactive elements of the page as it is now, without spoiling labels."""
        regions: dict[str, Any] = {}
        for world in await self._survey():
            call = f"omnibox.extend({json.dumps(world.keep)}, {self._next})"
            extended = await self._tab.call(call, world.frame)
            self._next = extended["next"]
            regions.update(extended["regions"])
            self._owner.update(dict.fromkeys(extended["regions"], world))
        return regions

    def forget(self) -> None:
        """Give up all labels: another tab's screenshot was marked since."""
        self._owner = {}
        self._worlds = []

    async def locate(self, label: str, *, for_text: bool = False) -> Located:
        """Return where a click on the label goes, scrolled into view where it must be."""
        world = self._world_of(label)
        try:
            await self._rebase(world, label)
            found = await self._located(world, label, for_text)
            if found is None:
                await self.call("reveal", label)
                # Scrolling it into view may have moved the frames around it.
                await self._rebase(world, label)
                found = await self.call("locate", label, for_text)
                if not await self._reaches(world, found["x"], found["y"]):
                    raise _problem(label, {"problem": "covered"})
        except ContextLost as exc:
            raise _problem(label, {"problem": "gone"}) from exc
        return Located(Point(found["x"], found["y"]), str(found["kind"]))

    async def call(self, function: str, label: str, *arguments: str | bool) -> dict[str, Any]:
        """Call a function of the page script on a label.

        Raises StaleMark, NotInteractable, or InvalidRequest for a value that does not fit.
        """
        found = await self._ask(function, label, *arguments)
        if "problem" in found:
            raise _problem(label, found)
        return found

    async def _ask(self, function: str, label: str, *arguments: str | bool) -> dict[str, Any]:
        world = self._world_of(label)
        written = ", ".join(json.dumps(argument) for argument in (label, *arguments))
        try:
            found: dict[str, Any] = await self._tab.call(
                f"omnibox.{function}({written})", world.frame
            )
        except ContextLost as exc:
            raise _problem(label, {"problem": "gone"}) from exc
        return found

    async def _located(self, world: _World, label: str, for_text: bool) -> dict[str, Any] | None:
        found = await self._ask("locate", label, for_text)
        if found.get("problem") == "covered":
            return None
        if "problem" in found:
            raise _problem(label, found)
        return found if await self._reaches(world, found["x"], found["y"]) else None

    # Marking.

    async def _mark(self) -> dict[str, Any]:
        top = await self._top()
        answer = await self._tab.call("omnibox.mark()")
        if "marks" in answer:
            marks: dict[str, Any] = answer["marks"]
            self._remember([top], marks, dict.fromkeys(_labels(marks), top))
            return marks
        worlds = await self._survey_frames(top, answer["surveyed"])
        return await self._number(worlds)

    async def _number(self, worlds: list[_World]) -> dict[str, Any]:
        numbers: dict[int, list[int]] = {id(world): [0] * len(world.boxes) for world in worlds}
        drawn: list[list[float]] = []
        for label, (world, index) in enumerate(worlds[0].in_order(), 1):
            numbers[id(world)][index] = label
            drawn.append([label, *world.boxes[index]])
        calls: list[Coroutine[Any, Any, dict[str, Any]]] = []
        for world, first in zip(worlds, _firsts(worlds, len(drawn) + 1), strict=True):
            call = f"omnibox.number({json.dumps(numbers[id(world)])}, {json.dumps(first)})"
            calls.append(self._tab.call(call, world.frame))
        numbered = await _together(calls)
        await self._tab.call(f"omnibox.draw({json.dumps(drawn)})")
        marks = _merged(numbered)
        owner = {
            label: world
            for world, own in zip(worlds, numbered, strict=True)
            for label in _labels(own)
        }
        self._remember(worlds, marks, owner)
        return marks

    def _remember(
        self, worlds: list[_World], marks: dict[str, Any], owner: dict[str, _World]
    ) -> None:
        self._worlds = worlds
        self._shown = marks
        self._owner = owner
        self._next = len(owner) + 1

    async def _erase(self) -> None:
        # Also on the way out of a command whose time is over, so it has little time itself. The
        # marks of a page that hangs go before the next screenshot, or else by themselves.
        try:
            async with asyncio.timeout(ERASE_LIMIT_S):
                await self._tab.call("omnibox.erase()")
        except TimeoutError:
            return
        except (ContextLost, TabClosed):
            pass  # the marks went with their document
        self._is_drawn = False

    async def _offscreen(self, world: _World) -> dict[str, Any]:
        if not self._tab.has_world(world.frame, world.context):
            return {}
        try:
            return await self._tab.call("omnibox.offscreen()", world.frame) or {}
        except ContextLost:
            return {}

    # Frames of another origin.

    async def _top(self) -> _World:
        return _World(self._tab.main_frame, await self._tab.world(self._tab.main_frame))

    async def _survey(self) -> list[_World]:
        top = await self._top()
        return await self._survey_frames(top, await self._tab.call("omnibox.survey(null)"))

    async def _survey_frames(self, top: _World, found: dict[str, Any]) -> list[_World]:
        top.found = found
        top.keep = [True] * len(top.boxes)
        worlds = level = [top]
        while level:  # frames, frames within frames, ...
            entries = [(world, entry) for world in level for entry in world.found["foreign"]]
            room = 1 + MAX_FOREIGN_FRAMES - len(worlds)
            surveyed = await _together([self._survey_frame(*entry) for entry in entries[:room]])
            level = [world for world in surveyed if world is not None]
            for world in level:
                assert world.parent is not None
                world.parent.inner.append(world)
            worlds = worlds + level
        return worlds

    async def _survey_frame(self, parent: _World, entry: dict[str, Any]) -> _World | None:
        try:
            frame = await self._frame_id(parent, entry)
            world = _World(frame, await self._tab.world(frame), parent, entry["index"], entry["at"])
            call = f"omnibox.survey({json.dumps(entry['frame'])})"
            world.found = await self._tab.call(call, frame)
            middles = [((b[0] + b[2]) / 2, (b[1] + b[3]) / 2) for b in world.boxes]
            world.keep = await self._reached(world, middles)
        except ContextLost:
            return None  # a frame that is just being replaced has nothing to show
        return world

    async def _frame_id(self, parent: _World, entry: dict[str, Any]) -> str:
        key: str = entry["key"]
        known = self._frame_ids.get(key)
        if known is None:
            element = f"omnibox.foreignElement({entry['index']})"
            known = await self._tab.frame_behind(element, parent.frame)
            if not known:
                raise ContextLost("the element shows no frame")
            if len(self._frame_ids) >= _MAX_KNOWN_FRAMES:
                self._frame_ids.clear()
            self._frame_ids[key] = known
        return known

    async def _rebase(self, world: _World, label: str) -> None:
        if world.parent is None:
            return
        await self._rebase(world.parent, label)
        frame = await self._tab.call(f"omnibox.geometry({world.index})", world.parent.frame)
        if frame is None:
            raise _problem(label, {"problem": "gone"})
        await self._tab.call(f"omnibox.rebase({json.dumps(frame)})", world.frame)

    async def _reaches(self, world: _World, x: float, y: float) -> bool:
        (reached,) = await self._reached(world, [(x, y)])
        return reached

    async def _reached(self, world: _World, points: Sequence[tuple[float, float]]) -> list[bool]:
        """Tell which points of a frame nothing covers in the pages around it."""
        reached = [True] * len(points)
        inside = world
        while points and (outside := inside.parent) is not None:
            call = f"omnibox.reaches({inside.index}, {json.dumps(points)})"
            hits = await self._tab.call(call, outside.frame)
            reached = [both and hit for both, hit in zip(reached, hits, strict=True)]
            inside = outside
        return reached

    def _world_of(self, label: str) -> _World:
        owner = world = self._owner.get(label)
        while world is not None:
            if not self._tab.has_world(world.frame, world.context):
                raise _problem(label, {"problem": "gone"})
            world = world.parent
        if owner is None:
            raise _problem(label, {"problem": "unknown"})
        return owner


async def _together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


def _firsts(worlds: list[_World], start: int) -> list[dict[str, int]]:
    """Return the first number of each kind of what has no box on screen, for each document."""
    firsts: list[dict[str, int]] = [{} for _ in worlds]
    for kind in _KINDS:
        for world, first in zip(worlds, firsts, strict=True):
            first[kind] = start
            start += world.found[kind]
    return firsts


def _labels(marks: Mapping[str, Any]) -> list[str]:
    return [*marks["visible_rects"], *marks["rects_above"], *marks["rects_below"]]


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    regions = {label: r for part in parts for label, r in part["interactive_regions"].items()}
    shown = ("visible_rects", "rects_above", "rects_below")
    lists = {name: sorted((x for part in parts for x in part[name]), key=int) for name in shown}
    return {
        **lists,
        "interactive_regions": {label: regions[label] for label in lists["visible_rects"]},
    }


def _problem(label: str, found: Mapping[str, Any]) -> InvalidRequest:
    match found["problem"]:
        case "unknown":
            return StaleMark(f"id: {label} is not a mark of the last screenshot; {_AGAIN}")
        case "gone":
            return StaleMark(f"id: the element of mark {label} is no longer in the page; {_AGAIN}")
        case "disabled":
            return NotInteractable(f"id: the element of mark {label} is disabled or read-only")
        case "value":
            kind, example = found["type"], found["example"]
            return InvalidRequest(f"value: must be a {kind} as HTML writes it: {example}")
        case "option":
            return InvalidRequest(
                f"value: must be one of the options: {', '.join(found['options'])}"
            )
        case _:
            by = f" by {found['by']}" if found.get("by") else ""
            return NotInteractable(f"id: the element of mark {label} is covered or hidden{by}")
