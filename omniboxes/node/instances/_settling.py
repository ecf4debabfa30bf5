"""Waiting for what an action started, and for nothing else.

The page's own script knows its timers, requests and animations (`_settle_script.js`); the tab knows
its navigations. Neither needs a quiet window, so a page on which nothing was started answers in one
round trip.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from omniboxes.errors import ScriptFailed
from omniboxes.node.instances._playwright_controller import SHOWN, ContextLost
from omniboxes.node.instances._types import Metadata, Settling, SettlingReason

if TYPE_CHECKING:
    from omniboxes.node.instances._playwright_controller import Tab

# A navigation that an action started may take longer than the page's own work.
NAVIGATION_LIMIT_S = 10.0
FRAME_NAVIGATION_LIMIT_S = 1.0
# What settling leaves of the deadline, for the screenshot.
RESERVE_S = 1.0
RECHECK_S = 0.5

_SETTLE = f"""(() => {{
  const settler = window[Symbol.for("omnibox.settle")];
  if (settler) return settler.settle(%s);
  return {{ reason: "idle", waited_for: [], ...{SHOWN} }};
}})()"""


class Limits(NamedTuple):
    """How long settling may take: for the page's work, its parsing, and a navigation."""

    cap_s: float
    parse_s: float = NAVIGATION_LIMIT_S
    navigation_s: float = NAVIGATION_LIMIT_S

    @classmethod
    def within(cls, cap_s: float, left_s: float) -> Self:
        """Return limits that leave time for a screenshot before the deadline."""
        usable_s = max(0.0, left_s - min(RESERVE_S, left_s / 2))
        return cls(*(min(limit_s, usable_s) for limit_s in (cap_s, *cls(cap_s)[1:])))


async def settle(tab: Tab, limits: Limits, *, scrolled: bool = False) -> Settling:
    """Wait until what was started in the tab has happened, at most to the cap."""
    started = time.monotonic()
    give_up_at = started + limits.navigation_s
    documents_before = tab.documents_shown
    waited_for: set[str] = set()
    while True:
        if tab.is_navigating:
            waited_for.add("navigation")
            if not await _navigation_over(tab, started, give_up_at):
                await tab.stop_loading()
                report = await _insist(tab)
                return _settling("navigation_pending", started, waited_for, report)
        asked = await _ask_page(tab, limits, give_up_at, scrolled=scrolled)
        if asked is None or tab.documents_shown > documents_before:
            waited_for.add("navigation")
        waited_for.update(asked["waited_for"] if asked is not None else ())
        if asked is not None and not tab.is_navigating:
            return _settling(asked["reason"], started, waited_for, asked)
        if time.monotonic() > give_up_at + limits.cap_s:
            # A page that goes on replacing itself.
            return _settling("cap", started, waited_for, await _insist(tab))


async def _ask_page(
    tab: Tab, limits: Limits, give_up_at: float, *, scrolled: bool
) -> dict[str, Any] | None:
    """Let the page settle and return what it says; None when another one takes its place."""
    arguments = json.dumps([limits.cap_s * 1000, limits.parse_s * 1000, scrolled])[1:-1]
    question = asyncio.ensure_future(tab.evaluate(_SETTLE % arguments))
    try:
        while not question.done():
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 and tab.main_is_navigating:
                return None  # while a navigation is under way Chromium keeps the question back
            await asyncio.wait([question], timeout=left_s if left_s > 0 else RECHECK_S)
        report: dict[str, Any] = question.result()
        return report
    except ContextLost:
        return None
    except ScriptFailed:
        # A page that broke the builtins of its own world cannot settle; it can be shown.
        return {"reason": "idle", "waited_for": [], **await tab.shown()}
    finally:
        question.cancel()


async def _insist(tab: Tab) -> dict[str, Any]:
    while True:
        report = await _ask_page(tab, Limits(0.0, 0.0), time.monotonic(), scrolled=False)
        if report is not None:
            return report


async def _navigation_over(tab: Tab, started: float, give_up_at: float) -> bool:
    """Wait for the navigations under way; False when the page's own one does not come."""
    while tab.is_navigating:
        is_main = tab.main_is_navigating
        until = give_up_at if is_main else min(give_up_at, started + FRAME_NAVIGATION_LIMIT_S)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await tab.navigation_changed()
        except TimeoutError:
            if is_main:
                return False
            # A frame that does not load is no reason to keep the page back.
            tab.ignore_frame_navigations()
    return True


def _settling(
    reason: SettlingReason, started: float, waited_for: set[str], shown: dict[str, Any]
) -> Settling:
    metadata = Metadata(shown["title"], shown["url"], shown["width"], shown["height"])
    elapsed_ms = (time.monotonic() - started) * 1000
    return Settling(reason, elapsed_ms, tuple(sorted(waited_for)), metadata)
