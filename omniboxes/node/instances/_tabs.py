"""The open pages of a session: which one is active, who opened whom, what became of them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from omniboxes.errors import InvalidRequest
from omniboxes.node.instances._playwright_controller import Tab, TabClosed
from omniboxes.node.instances._set_of_marks import Marks
from omniboxes.node.instances._types import Notices

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.async_api import BrowserContext, CDPSession, Page

logger = logging.getLogger(__name__)


class MarkedTab(Tab):
    """A page together with the labels drawn on it."""

    def __init__(self, page: Page, cdp: CDPSession, opener: Tab | None, notices: Notices) -> None:
        super().__init__(page, cdp, opener, notices)
        self.marks = Marks(self)


class Tabs:
    """All pages of one context: a new one becomes active, closing it returns to its opener."""

    def __init__(
        self, context: BrowserContext, max_tabs: int, on_crash: Callable[[], None]
    ) -> None:
        self.notices = Notices()
        self._context = context
        self._max_tabs = max_tabs
        self._on_crash = on_crash
        self._tabs: list[MarkedTab] = []
        self._active: MarkedTab | None = None
        self._adopting: dict[Page, asyncio.Task[None]] = {}
        self._adopted_windows = 0

    async def open_first(self) -> None:
        """Open the session's own page, then watch for those that sites open."""
        page = await self._context.new_page()
        await self._adopt(page)
        self._context.on("page", self._on_page)

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

    async def close(self, index: int | None) -> None:
        """Close a page; the last one is replaced by a blank one."""
        tab = self.active if index is None else self._at(index)
        try:
            await tab.page.close()
        except PlaywrightError as exc:
            raise tab.translated(exc) from exc
        self._on_close(tab)
        await self.ensure_open()

    async def ensure_open(self) -> None:
        """Open a blank page when a site has closed the last one."""
        if self._active is None:
            await self._adopt(await self._context.new_page())

    async def opened(self, limit_s: float) -> bool:
        """Wait for windows that are just being opened; True when the active page changed."""
        before = self._active
        try:
            async with asyncio.timeout(limit_s):
                while self._is_opening():
                    pending = list(self._adopting.values())
                    if pending:
                        await asyncio.wait(pending)
                    else:
                        await self._next_page()
        except TimeoutError:
            # A window whose server does not answer is not shown; it may still come later.
            self._adopted_windows = sum(tab.windows_opened for tab in self._tabs)
        return self._active is not before

    def _is_opening(self) -> bool:
        asked = sum(tab.windows_opened for tab in self._tabs)
        return bool(self._adopting) or asked > self._adopted_windows

    async def _next_page(self) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Page) -> None:
            if not arrived.done():
                arrived.set_result(None)

        self._context.on("page", wake)
        try:
            await arrived
        finally:
            self._context.remove_listener("page", wake)

    def _at(self, index: int) -> MarkedTab:
        if index >= len(self._tabs):
            raise InvalidRequest(f"index: there is no tab {index}; {len(self._tabs)} are open")
        return self._tabs[index]

    def _on_page(self, page: Page) -> None:
        self._adopted_windows += 1
        if page in self._adopting or any(tab.page is page for tab in self._tabs):
            return
        task = asyncio.create_task(self._adopt_opened(page), name="adopt-tab")
        self._adopting[page] = task
        task.add_done_callback(lambda _: self._adopting.pop(page, None))

    async def _adopt_opened(self, page: Page) -> None:
        try:
            if len(self._tabs) >= self._max_tabs:
                logger.info("closed a window beyond the %d tabs of a session", self._max_tabs)
                self.notices.closed_tabs += 1
                await page.close()
                return
            await self._adopt(page)
            self.notices.opened_tabs += 1
        except (PlaywrightError, TabClosed):
            return  # it closed itself before it was ours

    async def _adopt(self, page: Page) -> None:
        opener_page = await page.opener()
        opener = next((tab for tab in self._tabs if tab.page is opener_page), self._active)
        page.on("crash", lambda _: self._on_crash())
        tab = await MarkedTab.attach(page, opener, self.notices)
        page.on("close", lambda _: self._on_close(tab))
        if page.is_closed():
            raise TabClosed
        self._tabs.append(tab)
        self._active = tab

    def _on_close(self, tab: MarkedTab) -> None:
        if tab not in self._tabs:
            return
        tab.is_closed = True
        self._adopted_windows -= tab.windows_opened
        self._tabs.remove(tab)
        if self._active is tab:
            opener = tab.opener
            while opener is not None and opener.is_closed:
                opener = opener.opener
            last = self._tabs[-1] if self._tabs else None
            self._active = next((t for t in self._tabs if t is opener), last)
