"""Waiting for what an action started, and for nothing else.

The page's own script knows its timers, requests and animations (`_settle_script.js`); the tab knows
its navigations. Neither needs a quiet window, so a page on which nothing was started answers in one
round trip.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from omniboxes.node.instances._playwright_controller import ContextLost, Tab
from omniboxes.node.instances._types import Metadata, Settling

if TYPE_CHECKING:
    from playwright.async_api import Frame

# A navigation that an action started may take longer than the page's own work.
NAVIGATION_LIMIT_S = 10.0
FRAME_NAVIGATION_LIMIT_S = 1.0

_SETTLE = """(() => {
  const settler = window[Symbol.for("omnibox.settle")];
  if (settler) return settler.settle(%s);
  const shown = { title: document.title, url: location.href };
  return { reason: "idle", ms: 0, waited_for: [], ...shown, width: innerWidth, height: innerHeight };
})()"""
_SETTLE_FRAME = """([cap, parse]) => {
  const settler = window[Symbol.for("omnibox.settle")];
  return settler && settler.state.cause !== 0 ? settler.settle(cap, parse, false) : null;
}"""


class Limits(NamedTuple):
    """How long settling may take."""

    cap_s: float
    parse_s: float


async def settle(tab: Tab, limits: Limits, *, scrolled: bool = False) -> Settling:
    """Wait until what was started in the tab has happened, at most to the cap."""
    started = time.monotonic()
    waited_for: set[str] = set()
    while True:
        report = await _ask_page(tab, limits, scrolled=scrolled)
        scrolled = False
        waited_for |= set(report["waited_for"]) if report else set()
        elapsed_s = time.monotonic() - started
        if report is not None and not tab.is_navigating:
            return _settling(report["reason"], elapsed_s, waited_for, report)
        waited_for.add("navigation")
        if elapsed_s > NAVIGATION_LIMIT_S + limits.cap_s:
            return await _given_up("cap", tab, elapsed_s, waited_for)
        if not await _navigation_over(tab):
            elapsed_s = time.monotonic() - started
            return await _given_up("navigation_pending", tab, elapsed_s, waited_for)


async def _ask_page(tab: Tab, limits: Limits, *, scrolled: bool) -> dict[str, Any] | None:
    arguments = json.dumps([limits.cap_s * 1000, limits.parse_s * 1000, scrolled])[1:-1]
    try:
        report: dict[str, Any] = await tab.evaluate(_SETTLE % arguments)
    except ContextLost:
        return None
    foreign = [frame for frame in tab.page.frames if _is_foreign(frame)]
    if foreign:
        # Frames of another origin keep their own books.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_ask_frame(frame, limits)) for frame in foreign]
        waited = {kind for task in tasks for kind in task.result()}
        report["waited_for"] = sorted({*report["waited_for"], *waited})
    return report


async def _ask_frame(frame: Frame, limits: Limits) -> list[str]:
    try:
        async with asyncio.timeout(limits.cap_s + 0.5):
            report = await frame.evaluate(_SETTLE_FRAME, [limits.cap_s * 1000, limits.cap_s * 1000])
    except (PlaywrightError, TimeoutError):
        return []  # the frame went away or hangs; the page itself has answered
    return list(report["waited_for"]) if report else []


def _is_foreign(frame: Frame) -> bool:
    parent = frame.parent_frame
    if parent is None or not frame.url.startswith("http"):
        return False
    return urlsplit(frame.url)[:2] != urlsplit(parent.url)[:2]


async def _navigation_over(tab: Tab) -> bool:
    limit_s = NAVIGATION_LIMIT_S if tab.main_is_navigating else FRAME_NAVIGATION_LIMIT_S
    try:
        async with asyncio.timeout(limit_s):
            while tab.is_navigating:
                await tab.navigation_changed()
    except TimeoutError:
        if tab.main_is_navigating:
            return False
        # A frame that does not load is no reason to keep the page back.
        tab.ignore_frame_navigations()
    return True


async def _given_up(reason: str, tab: Tab, elapsed_s: float, waited_for: set[str]) -> Settling:
    while True:
        try:
            shown = await tab.metadata()
        except ContextLost:
            continue
        report = {"title": shown.title, "url": shown.url, "width": shown.width}
        return _settling(reason, elapsed_s, waited_for, {**report, "height": shown.height})


def _settling(
    reason: Any, elapsed_s: float, waited_for: set[str], shown: dict[str, Any]
) -> Settling:
    metadata = Metadata(shown["title"], shown["url"], shown["width"], shown["height"])
    return Settling(reason, elapsed_s * 1000, tuple(sorted(waited_for)), metadata)
