"""Chromium's accessibility tree as compact text: a node a line, indented, with the visible text.

A frame is shown where it stands in the page, whatever its origin. A frame's tree is fetched when it
is reached, so a tree that is cut early costs little. Of a document too large for its tree the text
is shown.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omniboxes.node.instances._playwright_controller import ContextLost, Tab

if TYPE_CHECKING:
    from collections.abc import Iterator

# Boxes without meaning of their own; their children are shown in their place.
_TRANSPARENT = frozenset(
    {
        *("none", "generic", "presentation", "InlineTextBox", "LineBreak", "MenuListPopup"),
        *("LabelText", "Legend", "strong", "emphasis", "mark", "ListMarker", "paragraph"),
    }
)
_FRAMES = frozenset({"Iframe", "IframePresentational"})
_STATES = (
    *("checked", "pressed", "selected", "expanded", "disabled", "required", "focused", "modal"),
    *("invalid", "readonly", "level"),
)
_REPEATING = frozenset({"StaticText", "heading", "image", "img"})
_NAMED_BY_CONTENT = frozenset(
    {
        *("link", "button", "heading", "cell", "gridcell", "columnheader", "rowheader", "tab"),
        *("option", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem", "checkbox"),
        *("radio", "switch", "tooltip", "DisclosureTriangle"),
    }
)
# Bullets say nothing; numbers of a list do.
_BULLETS = frozenset("•◦▪▸▾")
_MAX_INDENT = 20
MAX_FRAMES = 30
# Chromium takes a tenth of a second for a thousand elements; of more than these, the text must do.
MAX_ELEMENTS = 30_000
_SIZE = "document.getElementsByTagName('*').length"
CUT = "… (cut)"

Node = dict[str, Any]


async def ax_tree(tab: Tab, max_chars: int) -> str:
    """Return the tree of the page and its frames, cut to a number of characters."""
    tree = _Tree(tab, max_chars)
    with suppress(_Full):
        await tree.write(tab.main_frame, 0)
    return "\n".join(tree.lines)


class _Full(Exception):
    """There is no room for more."""


class _Tree:
    def __init__(self, tab: Tab, max_chars: int) -> None:
        self.lines: list[str] = []
        self._tab = tab
        self._max_chars = max_chars
        self._left = max_chars + 1  # the first line has no line break before it
        self._frames = 0

    async def write(self, frame: str, depth: int) -> None:
        self._frames += 1
        if await self._tab.call(_SIZE, frame) > MAX_ELEMENTS:
            for line in (await self._tab.call(f"omnibox.text({self._max_chars})", frame)).split(
                "\n"
            ):
                self._add("  " * depth + line)
            return
        answer = await self._tab.send("Accessibility.getFullAXTree", {"frameId": frame})
        for node, indent, line in _render(answer["nodes"], depth):
            if line:
                self._add("  " * min(indent, _MAX_INDENT) + line)
            if _role(node) in _FRAMES and self._frames < MAX_FRAMES:
                await self._write_frame(node, indent)

    async def _write_frame(self, node: Node, indent: int) -> None:
        try:
            owner = await self._tab.send(
                "DOM.describeNode", {"backendNodeId": node["backendDOMNodeId"]}
            )
            if (frame := owner["node"].get("frameId")) is not None:
                await self.write(frame, indent)
        except ContextLost:
            return  # a frame that went away has nothing to tell

    def _add(self, line: str) -> None:
        room = self._left - 1 - len(line)
        # Of a line that ends the text the beginning is shown, and of what came before enough is.
        if room < 0:
            whole = "\n".join([*self.lines, line])
            self.lines = [whole[: self._max_chars - len(CUT)] + CUT]
            raise _Full
        self.lines.append(line)
        self._left = room


def _render(nodes: list[Node], depth: int) -> Iterator[tuple[Node, int, str]]:
    """Yield the nodes in order, with their depth and their line; no line for what says nothing."""
    if not nodes:
        return
    by_id = {node["nodeId"]: node for node in nodes}
    # (node, depth, the node shown above): a stack, since a hostile page nests without limit.
    stack: list[tuple[Node, int, Node]] = [(nodes[0], depth, {})]
    root = "frame" if depth else "RootWebArea"
    while stack:
        node, depth, above = stack.pop()
        line = "" if _repeats(node, above) else _line(node, root)
        yield node, depth, line
        if line:
            depth, above = depth + 1, node
        children = [by_id[child] for child in node.get("childIds", []) if child in by_id]
        stack.extend((child, depth, above) for child in reversed(children))


def _repeats(node: Node, above: Node) -> bool:
    """Tell whether a node says once more what the one above it says of itself."""
    name = _name(node)
    if _role(node) not in _REPEATING or name in (_name(above), _value(above), *_BULLETS):
        return _role(node) in _REPEATING
    return _role(above) in _NAMED_BY_CONTENT and name in _name(above)


def _line(node: Node, root: str) -> str:
    role, name = _role(node), _name(node)
    if node.get("ignored") or role in _TRANSPARENT or role in _FRAMES:
        return ""
    if role == "StaticText":
        return name
    # The document of a frame stands for the frame.
    parts = [root if role == "RootWebArea" else role]
    if name:
        parts.append(f'"{name}"')
    if value := _value(node):
        parts.append(f"value={value!r}")
    for prop in node.get("properties", []):
        state = prop.get("value", {}).get("value")
        if prop["name"] in _STATES and state not in (None, False, "false"):
            is_flag = state is True or state == "true"
            parts.append(prop["name"] if is_flag else f"{prop['name']}={state}")
    return " ".join(parts)


def _role(node: Node) -> str:
    return str(node.get("role", {}).get("value", ""))


def _name(node: Node) -> str:
    return " ".join(str(node.get("name", {}).get("value", "")).split())


def _value(node: Node) -> str:
    value = node.get("value", {}).get("value")
    return "" if value is None else " ".join(str(value).split())
