"""Look for a Chromium on this machine."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from omniboxes.errors import SetupError

BROWSER_VARIABLE = "OMNIBOX_BROWSER"

_SHELL_NAMES = ("chromium-headless-shell", "chrome-headless-shell")
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MAC_APPS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)

Kind = Literal["headless-shell", "chromium"]


@dataclass(frozen=True, slots=True)
class Browser:
    """An executable Chromium of this machine."""

    path: str
    kind: Kind


class BrowserNotFound(SetupError):
    """There is no browser to run; the message says what to do about it."""


def find_browser(explicit: str | None = None) -> Browser:
    """Return the browser to run: `explicit`, else OMNIBOX_BROWSER, else the best one installed.

    Raises `BrowserNotFound` when there is none, and when the path asked for is not an executable: a
    browser that somebody chose is never replaced by another.
    """
    chosen = explicit or os.environ.get(BROWSER_VARIABLE)
    if chosen:
        return _chosen(Path(chosen).expanduser())
    for browser in _installed():
        return browser
    raise BrowserNotFound("No Chromium was found: run `omniboxes install-browser`.")


def _chosen(path: Path) -> Browser:
    if not _is_executable(path):
        problem = "is not an executable file" if path.exists() else "does not exist"
        raise BrowserNotFound(
            f"The browser {path} {problem}: "
            f"correct or unset {BROWSER_VARIABLE}, or run `omniboxes install-browser`."
        )
    is_shell = "headless" in path.name.lower()
    return Browser(str(path), "headless-shell" if is_shell else "chromium")


def _installed() -> Iterator[Browser]:
    for name in _SHELL_NAMES:
        if found := shutil.which(name):
            yield Browser(found, "headless-shell")
    for path in _playwright_shells():
        yield Browser(str(path), "headless-shell")
    for name in _CHROMIUM_NAMES:
        if found := shutil.which(name):
            yield Browser(found, "chromium")
    if sys.platform == "darwin":
        for app in _MAC_APPS:
            if _is_executable(Path(app)):
                yield Browser(app, "chromium")


def _playwright_shells() -> list[Path]:
    """Return the headless shells that Playwright has downloaded, newest first."""
    shells: list[tuple[int, Path]] = []
    for folder in _playwright_folder().glob("chromium_headless_shell-*"):
        revision = re.search(r"-(\d+)$", folder.name)
        # Playwright writes the marker last: without it the download was cut short.
        if revision is None or not (folder / "INSTALLATION_COMPLETE").exists():
            continue
        # The inner folder is named after the platform, the file after the Playwright version.
        inner = [*folder.glob("*/chrome-headless-shell"), *folder.glob("*/headless_shell")]
        shells += [(int(revision[1]), path) for path in inner if _is_executable(path)]
    return [path for _, path in sorted(shells, reverse=True)]


def _playwright_folder() -> Path:
    setting = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if setting == "0":  # "inside the package", as Playwright documents it
        return playwright_driver() / "package" / ".local-browsers"
    if setting:
        return Path(setting)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"


def playwright_driver() -> Path:
    """Return the folder of the installed Playwright's driver."""
    spec = find_spec("playwright")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "driver"


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
