"""The page every benchmark runs on, served from this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SITE = Path(__file__).parent.parent / "tests" / "site"
ALLOW = {"OMNIBOX_EGRESS_ALLOW": "127.0.0.0/8"}


@asynccontextmanager
async def shop_page() -> AsyncIterator[str]:
    """Serve the test site; yields the address of its shop page: 200 cards, nothing moving."""
    app = web.Application()
    app.router.add_static("/", SITE)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/shop.html"
    finally:
        await runner.cleanup()
