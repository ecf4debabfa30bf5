"""Fonts, without which Chromium renders pages that show no text."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from omniboxes._bounded import run_bounded

FONT_PACKAGES = (
    "fonts-liberation",  # metrics of Arial, Times and Courier, for which most pages are laid out
    "fonts-noto-color-emoji",
    "fonts-wqy-zenhei",  # Chinese, Japanese, Korean
)
"""The Debian packages that let pages look as they do for a person."""

_SUFFIXES = {".otf", ".pfb", ".ttc", ".ttf", ".woff", ".woff2"}


def has_fonts() -> bool:
    """Return whether a browser on this machine finds any font.

    fontconfig is asked, as Chromium asks it; without its `fc-list` the usual folders are searched.
    """
    if shutil.which("fc-list"):
        listed = run_bounded(["fc-list"], timeout_s=60)
        if listed.ok:
            return bool(listed.stdout.strip())
    return any(_holds_a_font(folder) for folder in _font_folders())


def _font_folders() -> Iterator[Path]:
    home = Path.home()
    yield Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "fonts"
    yield home / ".fonts"
    for shared in (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":"):
        yield Path(shared) / "fonts"
    yield Path("/System/Library/Fonts")
    yield Path("/Library/Fonts")


def _holds_a_font(folder: Path) -> bool:
    return any(path.suffix.lower() in _SUFFIXES for path in folder.rglob("*"))
