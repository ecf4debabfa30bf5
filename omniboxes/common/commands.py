"""The browser commands: their names, arguments and defaults, and the one parser of a command body.

A body is `{"<name>": {arguments}}` with exactly one name. Aliases and defaults are those of the
documented API, so existing clients need no change.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omniboxes.errors import InvalidRequest, UnknownCommand

MAX_SLEEP_S = 60.0
MAX_TEXT = 100_000

Coordinate = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


def _label(value: object) -> object:
    # Models write 15, "15" and " 15 "; all three mean the mark 15.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else value


Label = Annotated[str, BeforeValidator(_label), Field(pattern=r"^[0-9]{1,9}$")]


class Command(BaseModel):
    """Base of all commands; unknown arguments are refused by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=MAX_TEXT)

    name: ClassVar[str]


class _Point(Command):
    x: Coordinate
    y: Coordinate


class _Marked(Command):
    id: Label


class _Fill(Command):
    value: str
    press_enter: bool = True
    delete_existing: bool = False


class VisitPage(Command):
    """Navigate to an absolute http(s) URL."""

    name = "visit_page"
    url: str = Field(min_length=1, max_length=65_536)


class Back(Command):
    """Go back in the history; nothing happens at its start."""

    name = "back"


class ClickCoords(_Point):
    """Click at viewport coordinates."""

    name = "click_coords"


class DoubleClickCoords(_Point):
    """Double-click at viewport coordinates."""

    name = "double_click_coords"


class RightClickCoords(_Point):
    """Click with the right button at viewport coordinates."""

    name = "right_click_coords"


class ClickId(_Marked):
    """Click the element of a mark."""

    name = "click_id"


class FillCoords(_Point, _Fill):
    """Click at viewport coordinates, then type."""

    name = "fill_coords"


class FillId(_Marked, _Fill):
    """Click the element of a mark, then type."""

    name = "fill_id"


class SelectOption(_Marked):
    """Choose the option of a mark, in a drop-down or an ARIA list."""

    name = "select_option"


class HoverCoords(_Point):
    """Move the mouse to viewport coordinates."""

    name = "hover_coords"


class HoverId(_Marked):
    """Move the mouse over the element of a mark."""

    name = "hover_id"


class HoverAndScrollCoords(_Point):
    """Scroll what lies under a point by most of its height."""

    name = "hover_and_scroll_coords"
    direction: Literal["up", "down"] = "down"


class ScrollId(_Marked):
    """Scroll the element of a mark by its own size."""

    name = "scroll_id"
    direction: Literal["up", "down", "left", "right"] = "down"


class DragCoords(_Point):
    """Press at (x, y), move in steps, release at (to_x, to_y)."""

    name = "drag_coords"
    to_x: Coordinate
    to_y: Coordinate
    steps: int = Field(default=10, ge=1, le=200)


class _Scroll(Command):
    amount: Amount = 200
    full_page: bool = False


class PageDown(_Scroll):
    """Scroll the page down by `amount` pixels, or by nearly a screen."""

    name = "page_down"


class PageUp(_Scroll):
    """Scroll the page up by `amount` pixels, or by nearly a screen."""

    name = "page_up"


class Keypress(Command):
    """Press the keys together: down in order, up in reverse."""

    name = "keypress"
    keys: list[Annotated[str, Field(min_length=1, max_length=40)]] = Field(
        min_length=1, max_length=10
    )


class TabAndEnter(Command):
    """Press Tab, then Enter."""

    name = "tab_and_enter"


class Sleep(Command):
    """Wait, while the page goes on."""

    name = "sleep"
    duration: float = Field(ge=0, le=MAX_SLEEP_S, allow_inf_nan=False)


class GetPageMetadata(Command):
    """Return title and URL, with JSON-LD, microdata and meta tags where there are any."""

    name = "get_page_metadata"


class GetWebpageText(Command):
    """Return the first lines of the page's visible text."""

    name = "get_webpage_text"
    n_lines: int = Field(default=100, ge=1, le=100_000)


class GetInteractiveRects(Command):
    """Return the interactive elements with their boxes."""

    name = "get_interactive_rects"


class GetScreenshotInfo(Command):
    """Return what the last marked screenshot labelled."""

    name = "get_screenshot_info"


class Screenshot(Command):
    """Take a screenshot for its labels only; the image is not returned."""

    name = "screenshot"
    interaction_mode: Literal["set_of_marks", "coordinates"] = "set_of_marks"


class Evaluate(Command):
    """Evaluate JavaScript in the page; off unless the server enables it."""

    name = "evaluate"
    expression: str = Field(min_length=1)


class GetAxTree(Command):
    """Return the accessibility tree with the page's visible text, one node a line."""

    name = "get_ax_tree"
    max_chars: int = Field(default=20_000, ge=100, le=1_000_000)


class ListTabs(Command):
    """List the open pages of the session."""

    name = "list_tabs"


class SwitchTab(Command):
    """Make another open page the active one."""

    name = "switch_tab"
    index: int = Field(ge=0, le=1000)


class CloseTab(Command):
    """Close the active page, or the one named; its opener becomes active."""

    name = "close_tab"
    index: int | None = Field(default=None, ge=0, le=1000)


def _leaves(cls: type[Command]) -> list[type[Command]]:
    below = [leaf for child in cls.__subclasses__() for leaf in _leaves(child)]
    return ([cls] if "name" in vars(cls) else []) + below


BY_NAME: dict[str, type[Command]] = {cls.name: cls for cls in _leaves(Command)}


def parse_command(body: dict[str, Any]) -> Command:
    """Turn `{"<name>": {arguments}}` into the typed command.

    Raises UnknownCommand when there is not exactly one known name, and InvalidRequest when an
    argument is missing, unknown or of the wrong type.
    """
    if len(body) > 1:
        raise UnknownCommand(
            f"Only one command per request is supported, got: {', '.join(sorted(body))[:200]}"
        )
    if not body:
        raise UnknownCommand('The body names no command; send {"<command>": {arguments}}')
    ((name, arguments),) = body.items()
    cls = BY_NAME.get(name)
    if cls is None:
        raise UnknownCommand(f"Unsupported command: {name[:100]}")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{name}: the arguments must be a JSON object")
    try:
        return cls.model_validate(arguments)
    except ValidationError as exc:
        raise InvalidRequest(f"{name}: {first_problem(exc)}") from exc


def first_problem(exc: ValidationError) -> str:
    """Say the first problem of a validation in one sentence that names the field."""
    problem = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "body"
    return f"{where}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
