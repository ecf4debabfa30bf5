"""One Chromium process tree: its flags, its launch, its end.

Playwright owns the process; contexts are opened by the sessions. Site isolation is off: all frames
of a tab then live in one renderer and answer on one CDP session, which keeps marks and settling
simple, and it saves a process per foreign frame. Sessions stay in processes of their
own, since contexts never share a renderer.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import async_playwright

from omniboxes.browser import find_browser, sandbox_decision
from omniboxes.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Playwright

    from omniboxes.common.settings import Settings

logger = logging.getLogger(__name__)

LAUNCH_TIMEOUT_S = 30.0


def chromium_flags(proxy_port: int) -> list[str]:
    """Return the flags every Chromium of the tier runs with."""
    return [
        # All traffic goes through the egress proxy, loopback and WebRTC included.
        f"--proxy-server=socks5://127.0.0.1:{proxy_port}",
        "--proxy-bypass-list=<-loopback>",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--disable-quic",
        "--dns-prefetch-disable",
        # Names are the proxy's business; Chromium itself resolves nothing.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--disable-site-isolation-trials",
        # A wheel event has scrolled when it is acknowledged.
        "--disable-smooth-scrolling",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--no-pings",
        "--metrics-recording-only",
        "--mute-audio",
        "--hide-scrollbars",
    ]


@asynccontextmanager
async def playwright_driver() -> AsyncIterator[Playwright]:
    """Yield the Playwright driver, one per instance server."""
    async with async_playwright() as driver:
        yield driver


async def launch(driver: Playwright, settings: Settings, proxy_port: int) -> Browser:
    """Start a Chromium with a fresh profile."""
    browser = find_browser(settings.browser)
    sandboxed, reason = sandbox_decision(settings.sandbox)
    if not sandboxed:
        logger.warning("%s", reason)
    try:
        return await driver.chromium.launch(
            executable_path=str(browser.path),
            args=chromium_flags(proxy_port),
            chromium_sandbox=sandboxed,
            timeout=LAUNCH_TIMEOUT_S * 1000,
            # The instance server handles its signals itself.
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
    except PlaywrightError as exc:
        first_line = exc.message.splitlines()[0]
        raise SetupError(
            f"Chromium at {browser.path} does not start ({first_line}); run it by hand to see why, "
            "or set OMNIBOX_BROWSER to another one."
        ) from exc


__all__ = ["chromium_flags", "launch", "playwright_driver"]
