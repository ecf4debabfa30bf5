"""One page of a session, driven over its own CDP session.

Playwright owns the page's life; everything on the hot path (input, settling, marks, capture) is one
CDP message. Events arrive in order with the answers, so when the answer of an evaluation is here,
so is everything the page had started before it: navigations, new windows, dialogs.
"""

from __future__ import annotations

import asyncio
import base64
import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from omniboxes.errors import NavigationFailed, ScriptFailed
from omniboxes.node.instances._types import ImageOptions, Metadata, Notices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from playwright.async_api import CDPSession, Page

WORLD_NAME = "omnibox"
WORLD_SCRIPTS = (
    "_sight_script.js",
    "_page_script.js",
    "_draw_script.js",
    "_act_script.js",
)
# A navigation that was asked for begins within this, or not at all.
REQUESTED_LIMIT_S = 1.0
REPLACED_LIMIT_S = 0.1
ANSWER_LIMIT_S = 0.3
_WINDOW_SCHEMES = frozenset({"", "http", "https", "about", "blob"})
_SAME_DOCUMENT = frozenset({"sameDocument", "historySameDocument"})
# A page can hide document.title behind an element of that name.
SHOWN = """({
  title: Reflect.get(Document.prototype, "title", document).toWellFormed(), url: location.href,
  width: Number(innerWidth) || 0, height: Number(innerHeight) || 0,
})"""
_OPEN_WINDOW = 'window[Symbol.for("omnibox.settle")]?.open()'


class TabClosed(Exception):
    """The page is gone, by itself or by us; the session may live on in another tab."""

    def __init__(self, message: str, tab: Tab | None = None) -> None:
        super().__init__(message)
        self.tab = tab


class ContextLost(Exception):
    """The document was replaced while we were talking to it."""


@cache
def script(name: str) -> str:
    """Return a script that ships with this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class Tab:
    """A page with its CDP session, its navigation state and its isolated world."""

    def __init__(self, page: Page, cdp: CDPSession, opener: Tab | None, notices: Notices) -> None:
        self.page = page
        self.opener = opener
        self.closed = asyncio.Event()
        self.windows_awaited = 0
        self.documents_shown = 0
        self._cdp = cdp
        self._notices = notices
        self.main_frame = ""
        self._worlds: dict[str, int] = {}
        self._navigating: set[str] = set()
        self._requested: dict[str, float] = {}
        self._navigation_event = asyncio.Event()

    @classmethod
    async def attach(cls, page: Page, opener: Tab | None, notices: Notices) -> Self:
        """Wrap a Playwright page; raises TabClosed when it is gone already."""
        try:
            tab = cls(page, await page.context.new_cdp_session(page), opener, notices)
            tab._listen()
            await tab._cdp.send("Page.enable")
            tree = await tab._cdp.send("Page.getFrameTree")
        except PlaywrightError as exc:
            raise TabClosed("the page closed while it was opened") from exc
        tab.main_frame = tree["frameTree"]["frame"]["id"]
        return tab

    @property
    def is_closed(self) -> bool:
        """Whether the page is gone."""
        return self.closed.is_set()

    # Talking to the page.

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one CDP message and return its answer."""
        try:
            return await self._cdp.send(method, params)
        except PlaywrightError as exc:
            raise self.translated(exc) from exc

    async def send_all(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Send CDP messages in one go, without waiting for an answer between them."""
        try:
            async with asyncio.TaskGroup() as group:
                for method, params in messages:
                    group.create_task(self.send(method, params))
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error

    def translated(self, exc: PlaywrightError) -> Exception:
        """Say in our own types what Playwright says in words."""
        message = exc.message
        if not self.is_closed and "navigated" in message:
            return ContextLost(message)  # "Inspected target navigated or closed"
        if self.is_closed or "closed" in message or "crashed" in message or "detached" in message:
            return TabClosed(message, self)
        if any(lost in message for lost in ("context", "Frame", "No frame", "No node")):
            return ContextLost(message)
        return exc

    async def evaluate(self, expression: str, *, in_world: int | None = None) -> Any:
        """Evaluate in the page, or in a world of it, and return the value.

        Raises ScriptFailed when the expression throws or its value is no JSON, ContextLost when
        the document goes away.
        """
        params: dict[str, Any] = {
            "expression": expression,
            "returnByValue": True,
            "awaitPromise": True,
        }
        if in_world is not None:
            params["contextId"] = in_world
        try:
            answer = await self.send("Runtime.evaluate", params)
        except PlaywrightError as exc:
            reason = exc.message.rpartition("): ")[2]
            raise ScriptFailed(f"evaluate: the value cannot be returned: {reason}") from exc
        if (details := answer.get("exceptionDetails")) is not None:
            thrown = details.get("exception", {})
            text = thrown.get("description") or str(thrown.get("value", details.get("text")))
            raise ScriptFailed(f"evaluate: {(text.splitlines() or [''])[0][:500]}")
        result = answer["result"]
        return result.get("value", result.get("unserializableValue"))

    async def open_window(self) -> None:
        """Tell the page that an action begins which it cannot see: no input event announces it."""
        await self.evaluate(_OPEN_WINDOW)

    async def world(self, frame: str) -> int:
        """Return our isolated world in a frame; made anew for every document it shows."""
        known = self._worlds.get(frame)
        if known is not None:
            return known
        made = await self.send(
            "Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD_NAME}
        )
        world = int(made["executionContextId"])
        await self.evaluate("\n".join(map(script, WORLD_SCRIPTS)), in_world=world)
        self._worlds[frame] = world
        return world

    def has_world(self, frame: str, world: int) -> bool:
        """Tell whether the frame still shows the document that this world belongs to."""
        return self._worlds.get(frame) == world

    async def call(self, expression: str, frame: str | None = None) -> Any:
        """Call our own page script in the top document, or in a frame of it."""
        frame = frame or self.main_frame
        try:
            return await self.evaluate(expression, in_world=await self.world(frame))
        except ContextLost:
            self._worlds.pop(frame, None)
            raise

    async def frame_behind(self, expression: str, frame: str) -> str:
        """Return the id of the frame that an element of ours, named by an expression, shows."""
        params = {"expression": expression, "contextId": await self.world(frame)}
        answer = await self.send("Runtime.evaluate", params)
        object_id = answer["result"].get("objectId")
        if object_id is None:
            raise ContextLost("the frame's element is gone")
        node = await self.send("DOM.describeNode", {"objectId": object_id})
        return str(node["node"].get("frameId", ""))

    async def shown(self) -> dict[str, Any]:
        """Ask the page for its title, address and size."""
        shown: dict[str, Any] = await self.evaluate(SHOWN)
        return shown

    async def metadata(self) -> Metadata:
        """Ask the page for its title, address and size."""
        return Metadata(**await self.shown())

    # Looking.

    async def capture(self, options: ImageOptions) -> bytes:
        """Take a screenshot of the viewport as it is now."""
        params: dict[str, Any] = {"format": options.format, "optimizeForSpeed": True}
        if options.format != "png":
            params["quality"] = options.quality or 80
        try:
            answer = await self.send("Page.captureScreenshot", params)
        except PlaywrightError as exc:
            # Chromium has nothing to show while one document takes the other's place.
            raise ContextLost(exc.message) from exc
        return base64.b64decode(answer["data"])

    # Navigating.

    async def navigate(self, url: str) -> None:
        """Load a URL up to its commit; raises NavigationFailed with Chromium's reason."""
        answer = await self.send("Page.navigate", {"url": url})
        if (reason := answer.get("errorText")) is None:
            return
        if answer.get("isDownload"):
            raise NavigationFailed(f"{url} is a download, not a page; the page did not change")
        raise NavigationFailed(reason)

    async def unreachable_url(self) -> str | None:
        """Return the address behind Chromium's error page, None on any other page."""
        tree = await self.send("Page.getFrameTree")
        address: str | None = tree["frameTree"]["frame"].get("unreachableUrl")
        return address

    async def back(self) -> bool:
        """Go back one entry; False when there is none."""
        history = await self.send("Page.getNavigationHistory")
        index = history["currentIndex"]
        entries = history["entries"]
        # The blank page a session starts with is nobody's history.
        if index == 0 or (index == 1 and entries[0]["url"] == "about:blank"):
            return False
        self._requested[self.main_frame] = time.monotonic()
        await self.send("Page.navigateToHistoryEntry", {"entryId": entries[index - 1]["id"]})
        return True

    async def interrupt(self) -> None:
        """Stop whatever keeps the page from answering: a load or a script."""
        if self.main_is_navigating:
            await self.stop_loading()
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self.evaluate("0")
        except TimeoutError:
            # Only then: where no script runs, this would end the next one.
            await self.send("Runtime.terminateExecution")

    async def stop_loading(self) -> None:
        """Give up the navigations under way; the page stays what it is."""
        await self.send("Page.stopLoading")
        self._navigating.clear()
        self._requested.clear()

    @property
    def is_navigating(self) -> bool:
        """Whether a navigation was asked for or is under way in any frame."""
        if self._requested:
            oldest = time.monotonic() - REQUESTED_LIMIT_S
            self._requested = {f: at for f, at in self._requested.items() if at > oldest}
        return bool(self._navigating or self._requested)

    @property
    def main_is_navigating(self) -> bool:
        """Whether the page itself, not only a frame of it, is being replaced."""
        return self.main_frame in self._navigating or self.main_frame in self._requested

    def ignore_frame_navigations(self) -> None:
        """Forget the navigations under way in frames; they have had their time."""
        self._navigating &= {self.main_frame}
        self._requested = {f: at for f, at in self._requested.items() if f == self.main_frame}

    async def navigation_changed(self) -> None:
        """Return at the next event of a navigation; a mere request is looked at again soon."""
        self._navigation_event.clear()
        if self._navigating or not self._requested:
            await self._navigation_event.wait()
            return
        try:
            async with asyncio.timeout(REQUESTED_LIMIT_S):
                await self._navigation_event.wait()
        except TimeoutError:
            return  # the request came to nothing; is_navigating forgets it by its age

    async def replaced(self) -> None:
        """Wait for the document that takes a lost one's place, for a moment at most."""
        self._navigation_event.clear()
        try:
            async with asyncio.timeout(REPLACED_LIMIT_S):
                await self._navigation_event.wait()
        except TimeoutError:
            return  # it had come before we asked

    # Events.

    def _listen(self) -> None:
        handlers = {
            "Page.frameRequestedNavigation": self._on_requested,
            "Page.frameStartedNavigating": self._on_started,
            "Page.frameNavigated": self._on_navigated,
            "Page.navigatedWithinDocument": self._on_moved_within,
            "Page.frameStoppedLoading": self._on_ended,
            "Page.frameDetached": self._on_ended,
            "Page.windowOpen": self._on_window_open,
            "Page.javascriptDialogOpening": self._on_dialog,
        }
        for name, handler in handlers.items():
            self._cdp.on(name, handler)
        self.page.on("download", lambda d: self._notices.add_download(d.suggested_filename))

    def _on_requested(self, event: dict[str, Any]) -> None:
        if event.get("disposition") == "currentTab":
            self._requested[event["frameId"]] = time.monotonic()

    def _on_started(self, event: dict[str, Any]) -> None:
        if event.get("navigationType") not in _SAME_DOCUMENT:
            self._navigating.add(event["frameId"])

    def _on_navigated(self, event: dict[str, Any]) -> None:
        frame = event["frame"]["id"]
        if frame == self.main_frame:
            # Its frames went with the document.
            self.documents_shown += 1
            self._worlds.clear()
            self._navigating.clear()
            self._requested.clear()
        self._worlds.pop(frame, None)
        self._forget(frame)

    def _on_moved_within(self, event: dict[str, Any]) -> None:
        # A navigation to another document goes on beside it.
        self._requested.pop(event["frameId"], None)
        self._navigation_event.set()

    def _on_ended(self, event: dict[str, Any]) -> None:
        self._forget(event["frameId"])

    def _forget(self, frame: str) -> None:
        self._navigating.discard(frame)
        self._requested.pop(frame, None)
        self._navigation_event.set()

    def _on_window_open(self, event: dict[str, Any]) -> None:
        # Mail and telephone links open nothing here.
        if urlsplit(event["url"]).scheme in _WINDOW_SCHEMES:
            self.windows_awaited += 1

    def _on_dialog(self, event: dict[str, Any]) -> None:
        # Playwright dismisses it; the agent is told what it said.
        self._notices.add_dialog(event["type"], event["message"])
