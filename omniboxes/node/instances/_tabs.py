"""The open pages of a session: which one is active, who opened whom, what became of them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from omniboxes.errors import InvalidRequest
from omniboxes.node.instances._playwright_controller import Tab, TabClosed
from omniboxes.node.instances._set_of_marks import Marks
from omniboxes.node.instances._types import ImageOptions, Notices, Shot

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.async_api import BrowserContext, CDPSession, Page, ViewportSize

    from omniboxes.node.instances._types import Size

logger = logging.getLogger(__name__)

ADOPTION_LIMIT_S = 5.0


class MarkedTab(Tab):
    """A page together with the labels drawn on it."""

    def __init__(self, page: Page, cdp: CDPSession, opener: Tab | None, notices: Notices) -> None:
        super().__init__(page, cdp, opener, notices)
        self.marks = Marks(self)


class Tabs:
    """All pages of one context: a new one becomes active, closing it returns to its opener."""

    def __init__(
        self, context: BrowserContext, size: Size, max_tabs: int, on_crash: Callable[[], None]
    ) -> None:
        self.notices = Notices()
        self._context = context
        self._viewport: ViewportSize = {"width": size.width, "height": size.height}
        self._max_tabs = max_tabs
        self._on_crash = on_crash
        self._tabs: list[MarkedTab] = []
        self._active: MarkedTab | None = None
        self._adopting: set[asyncio.Task[None]] = set()
        self._in_order = asyncio.Lock()  # the window that came last is the one that is shown

    async def open_blank(self) -> None:
        """Open a page of the session's own; those that come later are the sites'."""
        page = await self._context.new_page()
        self._context.on("page", self._on_page)
        await self._adopt(page)

    @property
    def active(self) -> MarkedTab:
        """The page that commands go to; raises TabClosed while there is none."""
        if self._active is None:
            raise TabClosed("the session has no open page")
        return self._active

    def listing(self) -> list[dict[str, Any]]:
        """Describe the open pages in the order they were opened."""
        return [
            {"index": n, "url": tab.page.url, "active": tab is self._active}
            for n, tab in enumerate(self._tabs)
        ]

    def summary(self) -> dict[str, int]:
        """Say how many pages are open and which one is active."""
        active = self._tabs.index(self._active) if self._active in self._tabs else 0
        return {"count": len(self._tabs), "active": active}

    def switch(self, index: int) -> None:
        """Make another page the active one."""
        self._active = self._at(index)

    async def capture(self, tab: MarkedTab, options: ImageOptions) -> Shot:
        """Take a screenshot of a page; labels of all earlier ones are void after a marked one."""
        shot = await tab.marks.capture(options)
        for other in self._tabs:
            if options.marked and other is not tab:
                other.marks.forget()
        return shot

    async def close(self, index: int | None) -> None:
        """Close a page; the last one is replaced by a blank one."""
        tab = await self.current() if index is None else self._at(index)
        try:
            await tab.page.close()
        except PlaywrightError as exc:
            error = tab.translated(exc)
            if not isinstance(error, TabClosed):
                raise error from exc
        self._on_close(tab)

    async def current(self) -> MarkedTab:
        """Return the active page; a blank one when a site has closed the last."""
        if self._active is None:
            self._context.remove_listener("page", self._on_page)
            await self.open_blank()
        return self.active

    async def opened(self, limit_s: float) -> None:
        """Wait for windows that are just being opened; each becomes the active page."""
        try:
            async with asyncio.timeout(limit_s):
                while self._is_opening():
                    if self._adopting:
                        await asyncio.wait(self._adopting)
                    else:
                        await self._next_page()
        except TimeoutError:
            # A window whose server does not answer is shown when it has something to show.
            for tab in self._tabs:
                tab.windows_awaited = 0

    def _is_opening(self) -> bool:
        return bool(self._adopting) or any(tab.windows_awaited for tab in self._tabs)

    async def _next_page(self) -> None:
        arrived = asyncio.Event()

        def wake(_: Page) -> None:
            arrived.set()

        self._context.on("page", wake)
        try:
            await arrived.wait()
        finally:
            self._context.remove_listener("page", wake)

    def _at(self, index: int) -> MarkedTab:
        if index >= len(self._tabs):
            raise InvalidRequest(f"index: there is no tab {index}; {len(self._tabs)} are open")
        return self._tabs[index]

    def _on_page(self, page: Page) -> None:
        awaiting = next((tab for tab in self._tabs if tab.windows_awaited), None)
        if awaiting is not None:
            awaiting.windows_awaited -= 1
        if not page.url:
            work = self._close_quietly(page)  # it became a download, and has nothing to show
        elif len(self._tabs) + len(self._adopting) >= self._max_tabs:
            work = self._refuse(page)
        else:
            work = self._adopt_opened(page)
        task = asyncio.create_task(work, name="adopt-tab")
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _refuse(self, page: Page) -> None:
        logger.info("closed a window beyond the %d tabs of a session", self._max_tabs)
        self.notices.closed_tabs += 1
        await self._close_quietly(page)

    async def _close_quietly(self, page: Page) -> None:
        try:
            await page.close()
        except PlaywrightError:
            return  # it closed itself

    async def _adopt_opened(self, page: Page) -> None:
        try:
            async with self._in_order, asyncio.timeout(ADOPTION_LIMIT_S):
                await self._adopt(page)
        except (PlaywrightError, TabClosed):
            return  # it closed itself before it was ours
        except TimeoutError:
            await self._refuse(page)
        else:
            self.notices.opened_tabs += 1

    async def _adopt(self, page: Page) -> None:
        opener_page = await page.opener()
        opener = next((tab for tab in self._tabs if tab.page is opener_page), self._active)
        page.on("crash", lambda _: self._on_crash())
        tab = await MarkedTab.attach(page, opener, self.notices)
        page.on("close", lambda _: self._on_close(tab))
        if page.viewport_size != self._viewport:
            # A site may ask for a small window; coordinates mean the same in every tab.
            await page.set_viewport_size(self._viewport)
        if page.is_closed():
            raise TabClosed("the page closed while it was opened")
        self._tabs.append(tab)
        self._active = tab

    def _on_close(self, tab: MarkedTab) -> None:
        tab.closed.set()
        if tab not in self._tabs:
            return
        self._tabs.remove(tab)
        self.notices.closed_tabs += 1
        if self._active is tab:
            opener = tab.opener
            while opener is not None and opener.is_closed:
                opener = opener.opener
            last = self._tabs[-1] if self._tabs else None
            self._active = next((t for t in self._tabs if t is opener), last)
