"""One browser session: an isolated Chromium context with its tabs, under one lock.

A command holds the lock from its first input event to its last pixel, so a screenshot never shows
half of another command. Every way out is typed: the answer, an error of the command, 410 when the
browser is gone, 504 when the deadline passes (then the page is interrupted, and the session goes
on).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from playwright.async_api import Error as PlaywrightError

from omniboxes.common import commands as c
from omniboxes.errors import (
    DeadlineExceeded,
    EgressRefused,
    InstanceCrashed,
    InvalidRequest,
    InvalidUrl,
    NavigationFailed,
    ScriptFailed,
)
from omniboxes.node.egress.policy import Refusal
from omniboxes.node.egress.proxy import EgressProxy, UpstreamProxy
from omniboxes.node.instances import _actions
from omniboxes.node.instances._interrupt import Interrupt
from omniboxes.node.instances._playwright_controller import ContextLost, TabClosed, script
from omniboxes.node.instances._settling import Limits, settle
from omniboxes.node.instances._tabs import MarkedTab, Tabs
from omniboxes.node.instances._types import (
    ImageOptions,
    Metadata,
    Settling,
    Shot,
    Size,
    StepResult,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from playwright.async_api import Browser, BrowserContext

    from omniboxes.common.settings import Settings
    from omniboxes.common.wire import LeaseOptions, ProxyOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECOVERY_LIMIT_S = 1.0
REASON_LIMIT_S = 1.0
CLOSE_LIMIT_S = 10.0
CRASHED = "The browser of this session crashed; release it and take a new one"
VISITABLE_SCHEMES = frozenset({"http", "https", "data"})
REFUSED_SCHEMES = frozenset(
    {"file", "chrome", "view-source", "devtools", "chrome-extension", "ftp"}
)
NO_FULL_SCREEN = "Element.prototype.requestFullscreen = async () => { throw new TypeError(); };"
DEFAULT_PORTS = {"http": 80, "https": 443}


class PlaywrightInstance:
    """A session in a Chromium that others may share."""

    def __init__(
        self, settings: Settings, egress: EgressProxy, options: LeaseOptions | None = None
    ) -> None:
        self.on_crash: Callable[[], None] | None = None
        self._settings = settings
        self._egress = egress
        self._egress_port: int | None = None  # the lease's own door, when it brings a proxy
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()  # one command at a time, from input to capture
        self._gone = Interrupt()
        self._tabs: Tabs
        viewport = options.viewport if options else None
        self._size = (
            Size(viewport.width, viewport.height)
            if viewport
            else Size(settings.viewport_width, settings.viewport_height)
        )
        cap_s = options.settle_cap_s if options else None
        self.settle_cap_s = settings.settle_cap_s if cap_s is None else cap_s

    @classmethod
    async def open(
        cls,
        browser: Browser,
        settings: Settings,
        egress: EgressProxy,
        options: LeaseOptions | None = None,
    ) -> Self:
        """Open a context with one blank page."""
        self = cls(settings, egress, options)
        try:
            await self._open(browser, options)
        except BaseException as exc:
            if browser.is_connected():
                await self._abandon()
            if not isinstance(exc, PlaywrightError):
                raise
            if options is None or not browser.is_connected():
                raise InstanceCrashed(CRASHED) from exc
            raise InvalidRequest(f"the lease options do not work: {exc.message[:300]}") from exc
        return self

    async def _open(self, browser: Browser, options: LeaseOptions | None) -> None:
        arguments = await self._context_arguments(options)
        context: BrowserContext = await browser.new_context(**arguments)
        self._stack.push_async_callback(_close_context, context)
        await context.add_init_script(script("_settle_script.js"))
        if self._size != (self._settings.viewport_width, self._settings.viewport_height):
            # Full screen has one size for all sessions of a Chromium, so it is not to be had here.
            await context.add_init_script(NO_FULL_SCREEN)
        self._tabs = Tabs(context, self._size, self._settings.max_tabs, self.crash)
        await self._tabs.open_blank()

    async def _context_arguments(self, options: LeaseOptions | None) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "viewport": {"width": self._size.width, "height": self._size.height},
            "accept_downloads": False,
        }
        if options is None:
            return arguments
        given = options.model_dump(
            exclude={"caller", "viewport", "proxy", "settle_cap_s"}, exclude_none=True
        )
        if options.proxy is not None:
            upstream = _upstream(options.proxy)
            self._egress_port = await self._stack.enter_async_context(
                self._egress.upstream(upstream)
            )
            arguments["proxy"] = {"server": f"socks5://127.0.0.1:{self._egress_port}"}
        return {**arguments, **given}

    # Life.

    @property
    def is_alive(self) -> bool:
        """Whether the browser behind the session still runs."""
        return not self._gone.has_fired

    def crash(self) -> None:
        """Say that the browser is gone: the running command ends with 410, and so do later ones."""
        if self._gone.has_fired:
            return
        self._gone.fire(InstanceCrashed(CRASHED))
        if self.on_crash is not None:
            self.on_crash()

    def fence(self, error: Exception) -> None:
        """End the running command and every later one with this error."""
        self._gone.fire(error)

    async def _abandon(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._stack.aclose()
        except TimeoutError:
            logger.warning("a context that was being opened did not close")

    async def aclose(self) -> None:
        """Close the context and all it opened."""
        self._gone.fire(InstanceCrashed(CRASHED))
        async with asyncio.timeout(CLOSE_LIMIT_S):
            await self._stack.aclose()

    # What the server asks for.

    async def execute(self, command: c.Command, deadline_s: float) -> dict[str, Any]:
        """Carry out a command, let the page settle, and return the answer."""
        async with self._turn(deadline_s) as ends_at:
            if isinstance(command, c.Screenshot):
                await self._shot(ImageOptions(marked=command.interaction_mode == "set_of_marks"))
                return {"status": "screenshot_taken"}
            if _actions.is_reading(command):
                return await self._read(command)
            answer, settling = await self._perform(command, ends_at)
            return {**self._report(), **answer, "settle": settled(settling)}

    async def step(
        self,
        command: c.Command | None,
        options: ImageOptions,
        expression: str | None,
        deadline_s: float,
    ) -> StepResult:
        """Carry out a command, settle, and look at the page, all under one lock."""
        async with self._turn(deadline_s) as ends_at:
            answer: dict[str, Any] = dict(_actions.SUCCESS)
            if isinstance(command, c.Screenshot):
                command = None  # every step takes one
            elif command is not None and _actions.is_reading(command):
                answer.update(await self._read(command))
                command = None
            if command is None:
                settling = await self._settle(ends_at, scrolled=False)
            else:
                answer, settling = await self._perform(command, ends_at)
            if expression is not None:
                value = await self._looking(lambda tab: tab.evaluate(expression))
                answer = {**answer, "value": value}
            shot = await self._shot(options)
            return StepResult(answer, settling, shot, self._report())

    async def screenshot(self, options: ImageOptions, deadline_s: float) -> Shot:
        """Look at the page as it is."""
        async with self._turn(deadline_s):
            return await self._shot(options)

    async def metadata(self, deadline_s: float) -> Metadata:
        """Ask the page itself what it is."""
        async with self._turn(deadline_s):
            return await self._looking(MarkedTab.metadata)

    # Under the lock.

    @asynccontextmanager
    async def _turn(self, deadline_s: float) -> AsyncIterator[float]:
        ends_at = time.monotonic() + deadline_s
        late = DeadlineExceeded(f"The command was not done within {deadline_s:g} s")
        try:
            async with asyncio.timeout(deadline_s):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise late from exc
        try:
            async with self._gone:
                try:
                    async with asyncio.timeout(ends_at - time.monotonic()):
                        yield ends_at
                except TimeoutError as exc:
                    await self._recover()
                    raise late from exc
                except TabClosed as exc:
                    await self._outlive(exc)
                    raise NavigationFailed("The page closed itself; its opener is shown") from exc
                except PlaywrightError as exc:
                    if "closed" not in exc.message:
                        raise
                    await self._die()  # a context that is gone is as good as crashed
                    raise
        finally:
            self._lock.release()

    async def _recover(self) -> None:
        try:
            async with asyncio.timeout(RECOVERY_LIMIT_S):
                await self._tabs.active.interrupt()
        except (TimeoutError, TabClosed, ContextLost, PlaywrightError) as exc:
            logger.warning("a page did not let itself be interrupted: %s", exc)

    async def _outlive(self, exc: TabClosed) -> None:
        """Return when only the tab is gone; when it was a crash, this command ends here."""
        # The call fails before the event that says why; a crash interrupts the wait.
        if exc.tab is not None:
            try:
                async with asyncio.timeout(REASON_LIMIT_S):
                    await exc.tab.closed.wait()
            except TimeoutError:
                await self._die()

    async def _die(self) -> None:
        self.crash()
        await asyncio.sleep(0)  # where the interruption takes effect

    async def _perform(self, command: c.Command, ends_at: float) -> tuple[dict[str, Any], Settling]:
        match command:
            case c.VisitPage():
                await self._visit(command.url)
                done = _actions.Done(dict(_actions.SUCCESS))
            case c.ListTabs():
                done = _actions.Done({**_actions.SUCCESS, "tabs": self._tabs.listing()})
            case c.SwitchTab():
                self._tabs.switch(command.index)
                done = _actions.Done(dict(_actions.SUCCESS))
            case c.CloseTab():
                await self._tabs.close(command.index)
                done = _actions.Done(dict(_actions.SUCCESS))
            case _:
                done = await self._act(command)
        return done.answer, await self._settle(ends_at, scrolled=done.scrolled)

    async def _act(self, command: c.Command) -> _actions.Done:
        try:
            return await _actions.act(command, await self._tabs.current(), self._size)
        except TabClosed as exc:
            # The action closed its own page; its opener is shown next.
            await self._outlive(exc)
            if isinstance(command, c.Evaluate):
                raise ScriptFailed("evaluate: the page closed before there was a value") from exc
        except ContextLost:
            # The action replaced its own document before it was answered.
            pass
        return _actions.Done(dict(_actions.SUCCESS))

    async def _read(self, command: c.Command) -> dict[str, Any]:
        return await self._looking(lambda tab: _actions.read(command, tab))

    async def _shot(self, options: ImageOptions) -> Shot:
        return await self._looking(lambda tab: self._tabs.capture(tab, options))

    async def _looking(self, look: Callable[[MarkedTab], Awaitable[T]]) -> T:
        # A page may replace its document, or close, at any moment; looking again is harmless.
        is_first = True
        while True:
            tab = await self._tabs.current()
            try:
                return await look(tab)
            except ContextLost:
                if tab.is_navigating or not is_first:
                    await tab.replaced()
            except TabClosed as exc:
                await self._outlive(exc)
            is_first = False

    async def _settle(self, ends_at: float, *, scrolled: bool) -> Settling:
        while True:
            limits = Limits.within(self.settle_cap_s, ends_at - time.monotonic())
            tab = await self._tabs.current()
            try:
                settling = await settle(tab, limits, scrolled=scrolled)
            except TabClosed as exc:
                await self._outlive(exc)
                continue
            await self._tabs.opened(limits.cap_s)
            if await self._tabs.current() is tab:
                return settling
            scrolled = False

    async def _visit(self, url: str) -> None:
        parts = _checked(url)
        tab = await self._tabs.current()
        try:
            await tab.navigate(url)
        except NavigationFailed as exc:
            failing = await tab.unreachable_url() or url
            raise self._navigation_error(failing, exc.detail) from exc
        except ContextLost as exc:
            raise NavigationFailed(f"{parts.geturl()} was replaced while it was loading") from exc

    def _navigation_error(self, url: str, reason: str) -> Exception:
        parts = urlsplit(url)
        failure = None
        if parts.hostname:
            port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
            failure = self._egress.last_failure(parts.hostname, port, via=self._egress_port)
        if isinstance(failure, Refusal) and "SOCKS" in reason:
            return EgressRefused(failure.sentence)
        if failure is not None and "SOCKS" in reason and not isinstance(failure, Refusal):
            reason = failure.reason
        if reason.startswith("net::"):
            return NavigationFailed(f"{url[:500]} could not be loaded: {reason}")
        return NavigationFailed(reason)

    def _report(self) -> dict[str, Any]:
        report = self._tabs.notices.take()
        summary = self._tabs.summary()
        if summary["count"] > 1 or report.keys() & {"opened_tabs", "closed_tabs"}:
            report["tabs"] = summary
        return report


def settled(settling: Settling) -> dict[str, Any]:
    """Return the wire form of how the page came to rest."""
    return {
        "reason": settling.reason,
        "ms": round(settling.ms, 1),
        "waited_for": list(settling.waited_for),
    }


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError as exc:
        raise InvalidUrl(f"visit_page: url: {url[:200]!r} is not a URL ({exc})") from exc
    if url == "about:blank":
        return parts
    if parts.scheme not in VISITABLE_SCHEMES:
        shown = f"{parts.scheme}:" if parts.scheme else "no scheme"
        if parts.scheme in REFUSED_SCHEMES:
            raise EgressRefused(f"visit_page: url: {shown} addresses are never allowed")
        raise InvalidUrl(f"visit_page: url: must begin with http:// or https://, got {shown}")
    if parts.scheme != "data" and (not parts.hostname or not port_is_valid):
        raise InvalidUrl(f"visit_page: url: {url[:200]!r} names no host")
    return parts


def _upstream(proxy: ProxyOptions) -> UpstreamProxy:
    try:
        return UpstreamProxy(**proxy.model_dump())
    except ValueError as exc:
        raise InvalidRequest(str(exc)) from exc


async def _close_context(context: BrowserContext) -> None:
    try:
        await context.close()
    except PlaywrightError as exc:
        logger.debug("the context was gone already: %s", exc.message)
