"""What each command does to a tab.

`act` carries out the commands that change the page, `read` those that only look at it. Both are
dispatched by the command's type; what has no entry in either is a bug, not an input error.
"""

from __future__ import annotations

import asyncio
from functools import singledispatch
from typing import Any, NamedTuple

from omniboxes.common import commands as c
from omniboxes.errors import InvalidRequest, ScriptFailed
from omniboxes.node.instances import _ax_tree, _keys
from omniboxes.node.instances._playwright_controller import ContextLost
from omniboxes.node.instances._tabs import MarkedTab
from omniboxes.node.instances._types import Point, Size

# Above this, text is inserted in one piece: a page that counts keys sees none, but it is there.
MAX_TYPED_CHARS = 500
PAGE_OVERLAP_PX = 50
WHEEL_POINT = Point(10, 10)
WHEEL_STEP_PX = 100


class Done(NamedTuple):
    """How an action ended, for the settling after it."""

    answer: dict[str, Any]
    scrolled: bool = False


SUCCESS: dict[str, Any] = {"status": "success"}


@singledispatch
async def act(command: c.Command, tab: MarkedTab, size: Size) -> Done:
    """Carry out a command that changes the page."""
    raise AssertionError(f"no action for {command.name}")


@singledispatch
async def read(command: c.Command, tab: MarkedTab) -> dict[str, Any]:
    """Carry out a command that only looks at the page."""
    raise AssertionError(f"no reading for {command.name}")


def is_reading(command: c.Command) -> bool:
    """Tell whether a command leaves the page as it is."""
    return type(command) in read.registry


# Mouse.


def _inside(x: float, y: float, size: Size) -> Point:
    # A model that scales 0..1000 to pixels writes the edge itself; one pixel in is meant.
    for name, value, limit in (("x", x, size.width), ("y", y, size.height)):
        if value > limit:
            raise InvalidRequest(
                f"{name}: {value:g} is outside the viewport, which ends at {limit}"
            )
    return Point(min(x, size.width - 1), min(y, size.height - 1))


async def _mouse(tab: MarkedTab, *events: dict[str, Any]) -> None:
    # Sent in one go: a lone move waits for the next frame, a press behind it flushes it.
    await tab.send_all(("Input.dispatchMouseEvent", event) for event in events)


def _event(kind: str, point: Point, **more: Any) -> dict[str, Any]:
    return {"type": kind, "x": point.x, "y": point.y, **more}


def _press(point: Point, button: str, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    buttons = {"left": 1, "right": 2}[button]
    return (
        _event("mousePressed", point, button=button, buttons=buttons, clickCount=count),
        _event("mouseReleased", point, button=button, clickCount=count),
    )


async def _click(tab: MarkedTab, point: Point, *, button: str = "left", count: int = 1) -> None:
    presses = [event for n in range(1, count + 1) for event in _press(point, button, n)]
    await _mouse(tab, _event("mouseMoved", point), *presses)


async def _wheel(tab: MarkedTab, point: Point, delta_y: float) -> None:
    await _mouse(tab, _event("mouseWheel", point, deltaX=0, deltaY=delta_y))


@act.register
async def _(command: c.ClickCoords, tab: MarkedTab, size: Size) -> Done:
    await _click(tab, _inside(command.x, command.y, size))
    return Done(SUCCESS)


@act.register
async def _(command: c.DoubleClickCoords, tab: MarkedTab, size: Size) -> Done:
    await _click(tab, _inside(command.x, command.y, size), count=2)
    return Done(SUCCESS)


@act.register
async def _(command: c.RightClickCoords, tab: MarkedTab, size: Size) -> Done:
    await _click(tab, _inside(command.x, command.y, size), button="right")
    return Done(SUCCESS)


@act.register
async def _(command: c.ClickId, tab: MarkedTab, size: Size) -> Done:
    point, kind = await tab.marks.locate(command.id)
    if kind == "listed":
        # Headless Chromium shows no drop-down to click in.
        await tab.open_window()
        return Done({**SUCCESS, **await tab.marks.call("choose", command.id)})
    await _click(tab, point)
    return Done(SUCCESS)


@act.register
async def _(command: c.HoverCoords, tab: MarkedTab, size: Size) -> Done:
    await _mouse(tab, _event("mouseMoved", _inside(command.x, command.y, size)))
    return Done(SUCCESS)


@act.register
async def _(command: c.HoverId, tab: MarkedTab, size: Size) -> Done:
    point, _ = await tab.marks.locate(command.id)
    await _mouse(tab, _event("mouseMoved", point))
    return Done(SUCCESS)


@act.register
async def _(command: c.DragCoords, tab: MarkedTab, size: Size) -> Done:
    start = _inside(command.x, command.y, size)
    end = _inside(command.to_x, command.to_y, size)
    press, _ = _press(start, "left", 1)
    await _mouse(tab, _event("mouseMoved", start), press)
    for step in range(1, command.steps + 1):
        part = step / command.steps
        point = Point(start.x + (end.x - start.x) * part, start.y + (end.y - start.y) * part)
        await _mouse(tab, _event("mouseMoved", point, button="left", buttons=1))
    await _mouse(tab, _press(end, "left", 1)[1])
    return Done(SUCCESS)


# Scrolling.


@act.register
async def _(command: c.PageDown, tab: MarkedTab, size: Size) -> Done:
    return await _scroll_page(command, tab, size, 1)


@act.register
async def _(command: c.PageUp, tab: MarkedTab, size: Size) -> Done:
    return await _scroll_page(command, tab, size, -1)


async def _scroll_page(
    command: c.PageDown | c.PageUp, tab: MarkedTab, size: Size, sign: int
) -> Done:
    amount = size.height - PAGE_OVERLAP_PX if command.full_page else command.amount
    await _wheel(tab, WHEEL_POINT, sign * amount)
    return Done(SUCCESS, scrolled=True)


@act.register
async def _(command: c.ScrollId, tab: MarkedTab, size: Size) -> Done:
    await tab.open_window()
    moved = await tab.marks.call("scroll", command.id, command.direction)
    return Done({**SUCCESS, **moved}, scrolled=True)


@act.register
async def _(command: c.HoverAndScrollCoords, tab: MarkedTab, size: Size) -> Done:
    point = _inside(command.x, command.y, size)
    await _mouse(tab, _event("mouseMoved", point))
    await tab.open_window()
    moved = await tab.call(f"omnibox.scrollAt({point.x}, {point.y}, '{command.direction}')")
    if not moved["moved"]:
        await _wheel(tab, point, WHEEL_STEP_PX if command.direction == "down" else -WHEEL_STEP_PX)
    return Done(SUCCESS, scrolled=True)


# Keyboard.


async def _type(tab: MarkedTab, command: c.FillCoords | c.FillId) -> None:
    messages: list[_keys.Message] = []
    if command.delete_existing:
        messages += _keys.press([_keys.CONTROL_OR_META, _keys.key_named("a")])
        messages += _keys.press([_keys.BACKSPACE])
    if len(command.value) <= MAX_TYPED_CHARS:
        messages += _keys.typed(command.value)
    else:
        messages.append(("Input.insertText", {"text": command.value}))
    if command.press_enter:
        messages += _keys.press([_keys.ENTER])
    await tab.send_all(messages)


@act.register
async def _(command: c.FillCoords, tab: MarkedTab, size: Size) -> Done:
    await _click(tab, _inside(command.x, command.y, size))
    await _type(tab, command)
    return Done(SUCCESS)


@act.register
async def _(command: c.FillId, tab: MarkedTab, size: Size) -> Done:
    point, kind = await tab.marks.locate(command.id, for_text=True)
    if kind == "picker":
        await tab.open_window()
        held = await tab.marks.call("setValue", command.id, command.value)
        if command.press_enter and held.get("submits"):
            await tab.send_all(_keys.press([_keys.ENTER]))
        return Done(SUCCESS)
    await _click(tab, point)
    await _type(tab, command)
    return Done(SUCCESS)


@act.register
async def _(command: c.Keypress, tab: MarkedTab, size: Size) -> Done:
    await tab.send_all(_keys.press(_keys.combination(command.keys)))
    return Done(SUCCESS, scrolled=True)


@act.register
async def _(command: c.TabAndEnter, tab: MarkedTab, size: Size) -> Done:
    await tab.send_all([*_keys.press([_keys.TAB]), *_keys.press([_keys.ENTER])])
    return Done(SUCCESS)


@act.register
async def _(command: c.SelectOption, tab: MarkedTab, size: Size) -> Done:
    await tab.open_window()
    chosen = await tab.marks.call("choose", command.id)
    if not chosen.get("click"):
        return Done({**SUCCESS, **chosen})
    point, _ = await tab.marks.locate(command.id)
    await _click(tab, point)
    return Done(SUCCESS)


# The rest.


@act.register
async def _(command: c.Back, tab: MarkedTab, size: Size) -> Done:
    return Done({**SUCCESS, "moved": await tab.back()})


@act.register
async def _(command: c.Sleep, tab: MarkedTab, size: Size) -> Done:
    await asyncio.sleep(command.duration)
    return Done(SUCCESS)


@act.register
async def _(command: c.Evaluate, tab: MarkedTab, size: Size) -> Done:
    await tab.open_window()
    try:
        value = await tab.evaluate(command.expression)
    except ContextLost as exc:
        raise ScriptFailed("evaluate: the page was replaced before there was a value") from exc
    return Done({**SUCCESS, "value": value})


# Reading.


@read.register
async def _(command: c.GetPageMetadata, tab: MarkedTab) -> dict[str, Any]:
    data: dict[str, Any] = await tab.call("omnibox.pageData()")
    return data


@read.register
async def _(command: c.GetWebpageText, tab: MarkedTab) -> dict[str, Any]:
    return {"text": await tab.call(f"omnibox.text({command.n_lines})")}


@read.register
async def _(command: c.GetInteractiveRects, tab: MarkedTab) -> dict[str, Any]:
    return await tab.marks.rects()


@read.register
async def _(command: c.GetScreenshotInfo, tab: MarkedTab) -> dict[str, Any]:
    return await tab.marks.info()


@read.register
async def _(command: c.GetAxTree, tab: MarkedTab) -> dict[str, Any]:
    return {"ax_tree": await _ax_tree.ax_tree(tab, command.max_chars)}
