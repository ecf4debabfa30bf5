"""One Chromium process tree: its flags, its launch, its end.

Playwright owns the process; contexts are opened by the sessions. Site isolation is off: all frames
of a tab then live in one renderer and answer on one CDP session, which keeps marks and settling
simple, and it saves a process per foreign frame. Sessions stay in processes of their
own, since contexts never share a renderer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psutil
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import async_playwright

from omniboxes.browser import find_browser, sandbox_decision
from omniboxes.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


@asynccontextmanager
async def watched_driver(on_death: Callable[[], None]) -> AsyncIterator[None]:
    """Call `on_death` when the driver's process ends within the block.

    Playwright itself only lets the calls in flight fail; who makes none would never hear of it.
    """
    drivers = await asyncio.to_thread(psutil.Process().children)
    if not drivers or not hasattr(os, "pidfd_open"):
        yield  # not Linux: the next command finds out
        return
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(drivers[-1].pid)

    def died() -> None:
        loop.remove_reader(descriptor)
        logger.error("Playwright's driver died")
        on_death()

    loop.add_reader(descriptor, died)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def kill_browsers() -> None:
    """Kill all that the driver of this process has started; it blocks for a moment."""
    for driver in psutil.Process().children():
        for process in driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()


async def launch(driver: Playwright, settings: Settings, proxy_port: int) -> Browser:
    """Start a Chromium with a fresh profile."""
    browser = find_browser(settings.browser)
    sandboxed, reason = sandbox_decision(settings.sandbox)
    if not sandboxed:
        logger.warning("%s", reason)
    try:
        return await driver.chromium.launch(
            executable_path=str(browser.path),
            args=[*chromium_flags(proxy_port), _window_size(settings)],
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


def _window_size(settings: Settings) -> str:
    # A page in full screen gets the size of the screen, which is that of the first window.
    return f"--window-size={settings.viewport_width},{settings.viewport_height}"


__all__ = ["chromium_flags", "kill_browsers", "launch", "playwright_driver", "watched_driver"]
