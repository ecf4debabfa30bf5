"""Which Chromium to run, whether with its sandbox, and how to get one.

The only place that looks for a browser: an explicit path, else a headless shell (less memory
and a higher capture rate than a full Chromium), else a full one.

    python -m omniboxes.browser find        prints the path
    python -m omniboxes.browser install     gets a browser and fonts first, where they are missing

Everything here touches files and processes: call it before the event loop runs, or in a thread.
"""

import logging
import os
import sys
from collections.abc import Callable

import click

from omniboxes import _apt
from omniboxes._bounded import run_bounded
from omniboxes._browser_search import (
    BROWSER_VARIABLE,
    Browser,
    BrowserNotFound,
    find_browser,
    playwright_driver,
)
from omniboxes._fonts import FONT_PACKAGES, has_fonts
from omniboxes.errors import SetupError

__all__ = [
    "Browser",
    "BrowserNotFound",
    "find_browser",
    "has_fonts",
    "install_browser",
    "sandbox_decision",
]

logger = logging.getLogger(__name__)

_DEBIAN_BROWSERS = ("chromium-headless-shell", "chromium")
# The one library of Playwright's driver that a small Debian lacks.
_DRIVER_PACKAGE = "libatomic1"

_START_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_MS = "5000"
_DOWNLOAD_TIMEOUT_S = 600.0
_LIBRARIES_TIMEOUT_S = 900.0

Report = Callable[[str], None]


def sandbox_decision(setting: bool | None, *, is_root: bool | None = None) -> tuple[bool, str]:
    """Return whether Chromium runs with its sandbox, and the reason to log.

    A setting is obeyed, even where Chromium will then refuse to start: who asked for the sandbox
    must not silently go without. `is_root` is the process's own state unless given.
    """
    if setting is not None:
        state = "on" if setting else "off"
        return setting, f"Chromium's sandbox is {state}: OMNIBOX_SANDBOX says so."
    if is_root is None:
        is_root = os.geteuid() == 0
    if is_root:
        return False, "Chromium's sandbox is off: it cannot be used by root."
    return True, "Chromium's sandbox is on."


def install_browser(report: Report = logger.info) -> Browser:
    """Return a browser that starts, can be driven and finds fonts, getting whichever is missing.

    A browser comes from Playwright's download where the network allows it, else from the
    distribution's packages where the process is root; `report` is told what is being done. Raises
    `BrowserNotFound` or `SetupError` with the sentence that says what to install by hand.
    """
    _ensure_driver(report)
    browser, trouble = _working_browser()
    if browser is None:
        _download(report)
        browser, trouble = _working_browser()
    if trouble and _apt.can_install():
        _add_libraries(report)
        browser, trouble = _working_browser()
    if browser is None and _apt.can_install():
        _add_packages(report)
        browser, trouble = _working_browser()
    if browser is None:
        packages = (_DEBIAN_BROWSERS[0], *FONT_PACKAGES)
        raise BrowserNotFound(trouble or _advice("No Chromium was found", packages))
    if not has_fonts():
        _add_fonts(report)
    return browser


def _ensure_driver(report: Report) -> None:
    """Make Playwright's driver start: without it no browser can be downloaded or driven."""
    trouble = _driver_trouble()
    if trouble and _apt.can_install():
        report(f"Installing {_DRIVER_PACKAGE} with apt-get.")
        _apt.install(_DRIVER_PACKAGE)
        trouble = _driver_trouble()
    if trouble:
        raise SetupError(
            f"Playwright's driver does not start ({trouble}): "
            f"install what it lacks, e.g. `apt-get install {_DRIVER_PACKAGE}` as root."
        )


def _driver_trouble() -> str:
    node = os.environ.get("PLAYWRIGHT_NODEJS_PATH") or str(playwright_driver() / "node")
    return run_bounded([node, "--version"], timeout_s=_START_TIMEOUT_S).trouble


def _working_browser() -> tuple[Browser | None, str]:
    """Return the browser found if it starts, else the sentence that says why it does not.

    Both are empty where none is found. One that somebody chose is theirs to mend, and raises.
    """
    chosen = os.environ.get(BROWSER_VARIABLE)
    try:
        browser = find_browser()
    except BrowserNotFound:
        if chosen:
            raise
        return None, ""
    started = run_bounded([browser.path, "--version"], timeout_s=_START_TIMEOUT_S)
    if started.ok:
        return browser, ""
    sentence = (
        f"The browser {browser.path} does not start ({started.trouble}): install what it lacks, "
        f"e.g. as root with `{sys.executable} -m playwright install-deps chromium`."
    )
    if chosen:
        raise BrowserNotFound(sentence)
    return None, sentence


def _download(report: Report) -> None:
    report("Downloading a headless Chromium with Playwright.")
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    # Playwright tries five times: a short limit on each keeps a closed network from costing long.
    env = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": _CONNECT_TIMEOUT_MS}
    done = run_bounded(command, timeout_s=_DOWNLOAD_TIMEOUT_S, env=env)
    if not done.ok:
        report(f"Playwright's download is not possible here ({done.trouble}).")


def _add_libraries(report: Report) -> None:
    report("Installing the libraries that the browser needs.")
    command = [sys.executable, "-m", "playwright", "install-deps", "chromium"]
    done = run_bounded(command, timeout_s=_LIBRARIES_TIMEOUT_S)
    if not done.ok:
        report(f"The libraries could not be installed ({done.trouble}).")


def _add_packages(report: Report) -> None:
    for package in _DEBIAN_BROWSERS:
        report(f"Installing {package} and fonts with apt-get.")
        failure = _apt.install(package, *FONT_PACKAGES)
        if not failure:
            return
        report(f"apt-get could not install {package} ({failure}).")


def _add_fonts(report: Report) -> None:
    sentence = _advice("No font was found, without which pages show no text", FONT_PACKAGES)
    if not _apt.can_install():
        raise SetupError(sentence)
    report("Installing fonts with apt-get.")
    if failure := _apt.install(*FONT_PACKAGES):
        raise SetupError(f"{sentence.removesuffix('.')} (apt-get: {failure}).")


def _advice(problem: str, packages: tuple[str, ...]) -> str:
    return f"{problem}: install it, e.g. with `apt-get install {' '.join(packages)}` as root."


@click.group()
def main() -> None:
    """Find or install the browser that sessions run in."""


@main.command()
def find() -> None:
    """Print the path of the browser that would be run."""
    _print_browser(find_browser)


@main.command()
def install() -> None:
    """Get a browser and fonts where they are missing, and print the browser's path."""
    _print_browser(lambda: install_browser(lambda line: click.echo(line, err=True)))


def _print_browser(get: Callable[[], Browser]) -> None:
    try:
        browser = get()
    except SetupError as exc:
        click.echo(str(exc), err=True)
        sys.exit(2)
    click.echo(browser.path)


if __name__ == "__main__":
    main(prog_name="python -m omniboxes.browser")
