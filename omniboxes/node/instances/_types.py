"""Values that pass between the layers of a browser session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MAX_NOTICES = 20
MAX_MESSAGE = 1000


class Point(NamedTuple):
    """A place in the viewport, in CSS pixels."""

    x: float
    y: float


class Size(NamedTuple):
    """Size of the viewport, in CSS pixels."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What page is shown."""

    title: str
    url: str
    width: int
    height: int


SettlingReason = Literal["idle", "cap", "navigation_pending"]


@dataclass(frozen=True, slots=True)
class Settling:
    """How the page came to rest, with what it looked like then."""

    reason: SettlingReason
    ms: float
    waited_for: tuple[str, ...]
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How a screenshot is taken and encoded."""

    marked: bool
    format: Literal["png", "jpeg", "webp"] = "png"
    quality: int | None = None


@dataclass(frozen=True, slots=True)
class Shot:
    """A screenshot and, when marked, what its labels mean."""

    image: bytes
    marks: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """All that one `/step` saw."""

    answer: dict[str, Any]
    settling: Settling
    shot: Shot
    notices: dict[str, Any]


@dataclass(slots=True)
class Notices:
    """What happened beside the page since the last answer: dialogs, downloads, new tabs."""

    dialogs: list[dict[str, str]] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    opened_tabs: int = 0
    closed_tabs: int = 0

    def add_dialog(self, kind: str, message: str) -> None:
        """Remember a dialog; of a page that opens them without end, the first few."""
        if len(self.dialogs) < MAX_NOTICES:
            self.dialogs.append({"type": kind, "message": message[:MAX_MESSAGE]})

    def add_download(self, filename: str) -> None:
        """Remember a download that was refused."""
        if len(self.downloads) < MAX_NOTICES:
            self.downloads.append(filename[:MAX_MESSAGE])

    def take(self) -> dict[str, Any]:
        """Return what there is to report and forget it."""
        report: dict[str, Any] = {}
        for name in ("dialogs", "downloads", "opened_tabs", "closed_tabs"):
            if value := getattr(self, name):
                report[name] = value
        self.dialogs, self.downloads = [], []
        self.opened_tabs = self.closed_tabs = 0
        return report
