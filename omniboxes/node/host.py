"""The keeper of one Chromium: launches it, keeps its slots filled, and replaces it when it dies.

One task owns the browser. It sleeps until something changes (a release, a crash, a recycling) and
then does what is missing; nothing is polled but the memory of an idle Chromium.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

import psutil
from playwright.async_api import Error as PlaywrightError

from omniboxes.errors import (
    DeadlineExceeded,
    InstanceCrashed,
    InstanceNotFound,
    OmniboxError,
)
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.egress.proxy import EgressProxy
from omniboxes.node.instances._chromium import (
    kill_browsers,
    launch,
    playwright_driver,
    watched_driver,
)
from omniboxes.node.instances._interrupt import Interrupt
from omniboxes.node.instances.playwright_instance import PlaywrightInstance
from omniboxes.node.slots import GoneReason, Slots

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from omniboxes.common.settings import Settings
    from omniboxes.common.wire import LeaseOptions
    from omniboxes.node.egress.policy import Refusal

logger = logging.getLogger(__name__)

MEMORY_CHECK_S = 30.0
BROWSER_CLOSE_LIMIT_S = 5.0
# A Chromium that opens no context within this, or fails at it so often, is of no use any more.
OPEN_LIMIT_S = 10.0
MAX_OPEN_FAILURES = 3
RELEASED = "Instance not in use or already released"
CRASHED = "The browser of this session crashed"


class DriverDied(Exception):
    """Playwright's driver is gone, and with it the way to every browser."""


def emit(event: str, **fields: object) -> None:
    """Tell the node, one JSON line on stdout."""
    try:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return  # the node is gone; this process ends with it


class BrowserHost:
    """One Chromium with its slots, from the first launch to the end of the server."""

    def __init__(self, settings: Settings, size: int, policy: EgressPolicy) -> None:
        self._settings = settings
        self.slots: Slots[PlaywrightInstance] = Slots(
            size, settings.spares_per_browser, on_ready=self._on_ready, on_gone=self._on_gone
        )
        self._egress = EgressProxy(policy, on_refused=self._on_refused)
        self._browser: Browser | None = None
        self._down = Interrupt()  # what waits for this Chromium ends with it
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_sick = False
        self._driver_is_dead = False

    # What the server asks for.

    async def lease(self, instance_id: str | None, options: LeaseOptions | None) -> str:
        """Lease a slot; options that a warm context cannot serve open one of their own."""
        slot = self.slots.lease(instance_id)
        if options is None:
            return slot.id
        if not options.needs_own_context():
            if options.settle_cap_s is not None:
                slot.session.settle_cap_s = options.settle_cap_s
            return slot.id
        try:
            session = await self._open(options)
        except BaseException:
            self._close_behind(self.slots.give_up(slot))
            raise
        # Both were leased for a moment; the one that is no longer needed goes.
        self._close_behind(self.slots.replace(slot, session))
        if slot.session is not session:
            raise InstanceCrashed(CRASHED)
        return slot.id

    def release(self, instance_id: str) -> None:
        """Fence the id now; its context is closed behind the answer."""
        session = self.slots.release(instance_id)
        if session is not None:
            session.fence(InstanceNotFound(RELEASED))
            self._close_behind(session)
        self._changed.set()

    def session(self, instance_id: str) -> PlaywrightInstance:
        """Return the session of a lease."""
        return self.slots.get(instance_id).session

    @property
    def is_up(self) -> bool:
        """Whether a Chromium runs."""
        return self._browser is not None and self._browser.is_connected()

    # The keeper.

    async def run(self) -> None:
        """Keep a Chromium with full slots until cancelled."""
        async with (
            self._egress,
            playwright_driver() as driver,
            watched_driver(self._on_driver_death),
        ):
            while True:
                self._browser = await launch(driver, self._settings, self._egress.port)
                logger.info("Chromium %s is up", self._browser.version)
                try:
                    await self._keep(self._browser)
                finally:
                    await self._end(self._browser)

    async def _keep(self, browser: Browser) -> None:
        self._down = Interrupt()
        browser.on("disconnected", lambda _: self._on_disconnected())
        self._is_sick = False
        leases_before = self.slots.leases_granted
        while browser.is_connected():
            self._changed.clear()
            if not await self._fill(browser):
                return
            used = self.slots.leases_granted - leases_before
            if self.slots.leased == 0 and await self._is_worn(used):
                logger.info("recycling an idle Chromium after %d leases", used)
                return
            try:
                async with asyncio.timeout(MEMORY_CHECK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _fill(self, browser: Browser) -> bool:
        """Open what sessions are missing; False when this Chromium opens none any more."""
        failures = 0
        while self.slots.wants_session and browser.is_connected():
            if self._driver_is_dead:
                raise DriverDied
            started = time.monotonic()
            try:
                session = await self._open(None)
            except (OmniboxError, PlaywrightError) as exc:
                failures += 1
                logger.warning("a context could not be opened: %s", exc)
                if failures == MAX_OPEN_FAILURES:
                    return False
                continue
            logger.debug("a context was opened in %.0f ms", (time.monotonic() - started) * 1000)
            self.slots.add(session)
        return True

    async def _is_worn(self, leases: int) -> bool:
        if self._is_sick or leases >= self._settings.recycle_after_leases:
            return True
        if leases == 0:
            return False
        used_mb = await asyncio.to_thread(_children_mb)
        return used_mb > self._settings.recycle_rss_mb

    async def _open(self, options: LeaseOptions | None) -> PlaywrightInstance:
        browser = self._browser
        if browser is None or not browser.is_connected():
            raise InstanceCrashed(CRASHED)
        try:
            # Playwright may leave a call without an answer when the browser dies in it.
            async with self._down, asyncio.timeout(OPEN_LIMIT_S):
                session = await PlaywrightInstance.open(
                    browser, self._settings, self._egress, options
                )
        except TimeoutError as exc:
            raise DeadlineExceeded(f"No context was opened within {OPEN_LIMIT_S:g} s") from exc
        session.on_crash = lambda: self._on_session_crash(session)
        if not session.is_alive or not browser.is_connected():
            raise InstanceCrashed(CRASHED)
        return session

    async def _end(self, browser: Browser) -> None:
        self._browser = None
        for session in self.slots.withdraw():
            session.fence(InstanceNotFound(RELEASED))
        for session in self.slots.sessions():
            session.crash()
        if self._driver_is_dead or not browser.is_connected():
            return
        try:
            async with asyncio.timeout(BROWSER_CLOSE_LIMIT_S):
                await browser.close()
        except (TimeoutError, PlaywrightError) as exc:
            logger.warning("Chromium did not close and is killed: %s", exc)
            await asyncio.to_thread(kill_browsers)

    def _close_behind(self, session: PlaywrightInstance | None) -> None:
        if session is None or self._driver_is_dead:
            return
        task = asyncio.create_task(self._close(session), name="close-session")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, session: PlaywrightInstance) -> None:
        try:
            await session.aclose()
        except (TimeoutError, PlaywrightError) as exc:
            # What cannot be closed goes with its Chromium, as soon as nobody uses it.
            logger.warning("a context did not close, its Chromium will be recycled: %r", exc)
            self._is_sick = True
        self._changed.set()

    # Events.

    def _on_session_crash(self, session: PlaywrightInstance) -> None:
        self.slots.drop(session)
        self._close_behind(session)
        self._changed.set()

    def _on_disconnected(self) -> None:
        sessions = self.slots.sessions()
        if sessions:
            logger.warning("Chromium is gone, with %d sessions", len(sessions))
        for session in sessions:
            session.crash()
        self._down.fire(InstanceCrashed(CRASHED))
        self._changed.set()

    def _on_driver_death(self) -> None:
        self._driver_is_dead = True
        self._on_disconnected()

    def _on_ready(self, instance_id: str) -> None:
        emit("ready", instance_id=instance_id)

    def _on_gone(self, instance_id: str, reason: GoneReason) -> None:
        emit("gone", instance_id=instance_id, reason=reason)

    def _on_refused(self, refusal: Refusal) -> None:
        logger.info("egress refused: %s", refusal.sentence)
        emit("egress_refused", count=1)


def _children_mb() -> float:
    total = 0
    for child in psutil.Process().children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6
