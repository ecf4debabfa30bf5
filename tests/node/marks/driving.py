"""A session with labels: marking a page, and finding a label by what it stands on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.node.instances.driving import Session, Step

WIDTH, HEIGHT = 1280, 768


class Rect(NamedTuple):
    """The box of a mark."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


class Marks:
    """What one marked screenshot showed."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self.info = info
        self.visible: list[str] = info["visible_rects"]
        self.above: list[str] = info["rects_above"]
        self.below: list[str] = info["rects_below"]
        self.regions: dict[str, dict[str, Any]] = info["interactive_regions"]

    @property
    def all(self) -> list[str]:
        """All labels, in the order of their numbers."""
        return [*self.visible, *self.above, *self.below]

    def rect(self, label: str) -> Rect | None:
        """Return the box of a label; None where it is listed only."""
        rects = self.regions[label]["rects"]
        if not rects:
            return None
        box = rects[0]
        return Rect(box["left"], box["top"], box["right"], box["bottom"])

    def boxed(self) -> Iterator[tuple[str, Rect]]:
        """Yield the labels that are drawn, with their boxes."""
        for label in self.visible:
            if (rect := self.rect(label)) is not None:
                yield label, rect

    def names(self) -> list[str]:
        """Return the names of what is visible."""
        return [self.regions[label]["aria_name"] for label in self.visible]

    def labels(self, name: str, tag: str | None = None) -> list[str]:
        """Return the labels of all elements of that name."""
        return [
            label
            for label, region in self.regions.items()
            if region["aria_name"] == name and tag in (None, region["tag_name"])
        ]

    def label(self, name: str, tag: str | None = None) -> str:
        """Return the label of the one element of that name."""
        (label,) = self.labels(name, tag)
        return label

    def of(self, name: str, tag: str | None = None) -> dict[str, Any]:
        """Return the record of the one element of that name."""
        return self.regions[self.label(name, tag)]


@dataclass(frozen=True, eq=False)
class MarkedSession(Session):
    """A session that is driven by labels."""

    async def mark(self) -> Marks:
        """Take a marked screenshot and return what it labelled, off-screen elements included."""
        await self.execute("screenshot")
        return await self.shown()

    async def shown(self) -> Marks:
        """Return what the last marked screenshot labelled."""
        return Marks(await self.execute("get_screenshot_info"))

    async def open(self, page: str) -> Marks:
        """Visit a page of the site and mark it."""
        url = page if "://" in page or page.startswith("data:") else f"{self.site.url}/{page}"
        await self.execute("visit_page", url=url)
        return await self.mark()

    async def open_html(self, body: str) -> Marks:
        """Show a document of the test's own and mark it."""
        await self.execute("visit_page", url=f"{self.site.url}/empty.html")
        await self.evaluate(f"document.body.innerHTML = {body!r}; 0")
        return await self.mark()

    async def click_label(self, label: str) -> None:
        """Click a label."""
        await self.execute("click_id", id=label)

    async def fill(self, label: str, value: str, **more: Any) -> None:
        """Fill the field of a label."""
        arguments = {"press_enter": False, "delete_existing": True, **more}
        await self.execute("fill_id", id=label, value=value, **arguments)

    async def log(self) -> str:
        """Return what the page logged last."""
        return await self.text("log")

    async def marked_step(self, command: str | None = None, **arguments: Any) -> Step:
        """Carry out a command and return the marked page."""
        options = {"interaction_mode": "set_of_marks"}
        return await self.step(command, options=options, **arguments)
