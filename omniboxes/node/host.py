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

from omniboxes.errors import InstanceCrashed, InstanceNotFound, OmniboxError
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.egress.proxy import EgressProxy
from omniboxes.node.instances._chromium import launch, playwright_driver
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
RELEASED = "Instance not in use or already released"


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
        self.slots = Slots(
            size, settings.spares_per_browser, on_ready=self._on_ready, on_gone=self._on_gone
        )
        self._egress = EgressProxy(policy, on_refused=self._on_refused)
        self._browser: Browser | None = None
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_sick = False

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
            self._close_behind(self.slots.release(slot.id))
            raise
        if slot.session.is_alive:
            self._close_behind(slot.session)
        slot.session = session
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
        async with self._egress, playwright_driver() as driver:
            while True:
                self._browser = await launch(driver, self._settings, self._egress.port)
                logger.info("Chromium %s is up", self._browser.version)
                try:
                    await self._keep(self._browser)
                finally:
                    await self._end(self._browser)

    async def _keep(self, browser: Browser) -> None:
        browser.on("disconnected", lambda _: self._on_disconnected())
        self._is_sick = False
        leases_before = self.slots.leases_granted
        while browser.is_connected():
            self._changed.clear()
            await self._fill(browser)
            used = self.slots.leases_granted - leases_before
            if self.slots.leased == 0 and await self._is_worn(used):
                logger.info("recycling an idle Chromium after %d leases", used)
                return
            try:
                async with asyncio.timeout(MEMORY_CHECK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _fill(self, browser: Browser) -> None:
        while self.slots.wants_session and browser.is_connected():
            started = time.monotonic()
            try:
                session = await self._open(None)
            except (OmniboxError, PlaywrightError) as exc:
                if browser.is_connected():
                    raise
                logger.warning("Chromium died while a context was opened: %s", exc)
                return
            logger.debug("a context was opened in %.0f ms", (time.monotonic() - started) * 1000)
            self.slots.add(session)

    async def _is_worn(self, leases: int) -> bool:
        if self._is_sick or leases >= self._settings.recycle_after_leases:
            return True
        if leases == 0:
            return False
        used_mb = await asyncio.to_thread(_children_mb)
        return used_mb > self._settings.recycle_rss_mb

    async def _open(self, options: LeaseOptions | None) -> PlaywrightInstance:
        if self._browser is None or not self._browser.is_connected():
            raise InstanceCrashed("The browser of this session crashed")
        session = await PlaywrightInstance.open(
            self._browser, self._settings, self._egress, options
        )
        session.on_crash = lambda: self._on_session_crash(session)
        if not session.is_alive:
            raise InstanceCrashed("The browser of this session crashed")
        return session

    async def _end(self, browser: Browser) -> None:
        self._browser = None
        for session in self.slots.withdraw():
            session.fence(InstanceNotFound(RELEASED))
        for session in self.slots.sessions():
            session.crash()
        if browser.is_connected():
            try:
                async with asyncio.timeout(BROWSER_CLOSE_LIMIT_S):
                    await browser.close()
            except (TimeoutError, PlaywrightError) as exc:
                logger.warning("Chromium did not close: %s", exc)

    def _close_behind(self, session: PlaywrightInstance | None) -> None:
        if session is None:
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
        self._changed.set()

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
