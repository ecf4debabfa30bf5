"""Values that pass between the layers of a browser session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


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


@dataclass(frozen=True, slots=True)
class Settling:
    """How the page came to rest, with what it looked like then."""

    reason: Literal["idle", "cap", "navigation_pending"]
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
    value: Any = None


@dataclass(slots=True)
class Notices:
    """What happened beside the page since the last answer: dialogs, downloads, new tabs."""

    dialogs: list[dict[str, str]] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    opened_tabs: int = 0
    closed_tabs: int = 0

    def take(self) -> dict[str, Any]:
        """Return what there is to report and forget it."""
        report: dict[str, Any] = {}
        for name in ("dialogs", "downloads", "opened_tabs", "closed_tabs"):
            if value := getattr(self, name):
                report[name] = value
        self.dialogs, self.downloads = [], []
        self.opened_tabs = self.closed_tabs = 0
        return report
