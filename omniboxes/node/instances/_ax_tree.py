"""Chromium's accessibility tree as compact text: a node a line, indented, with the visible text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omniboxes.node.instances._playwright_controller import Tab

if TYPE_CHECKING:
    from collections.abc import Iterator

# Boxes without meaning of their own; their children are shown in their place.
_TRANSPARENT = frozenset(
    {"none", "generic", "presentation", "InlineTextBox", "LineBreak", "Iframe"}
)
_STATES = ("checked", "pressed", "selected", "expanded", "disabled", "required", "focused")
MAX_FRAMES = 30
CUT = "… (cut)"


async def ax_tree(tab: Tab, max_chars: int) -> str:
    """Return the tree of the page and its frames, cut to a number of characters."""
    frames = _frame_ids((await tab.send("Page.getFrameTree"))["frameTree"])
    lines: list[str] = []
    used = 0
    for number, frame in enumerate(frames[:MAX_FRAMES]):
        answer = await tab.send("Accessibility.getFullAXTree", {"frameId": frame})
        if number:
            lines.append("frame")
        for line in _render(answer["nodes"]):
            used += len(line) + 1
            if used > max_chars:
                lines.append(CUT)
                return "\n".join(lines)
            lines.append(line)
    return "\n".join(lines)


def _frame_ids(tree: dict[str, Any]) -> list[str]:
    below = [frame for child in tree.get("childFrames", []) for frame in _frame_ids(child)]
    return [tree["frame"]["id"], *below]


def _render(nodes: list[dict[str, Any]]) -> Iterator[str]:
    if not nodes:
        return
    by_id = {node["nodeId"]: node for node in nodes}
    # (node, depth, name of the node above): a stack, since a hostile page nests without limit.
    stack = [(nodes[0], 0, "")]
    while stack:
        node, depth, above = stack.pop()
        role = str(node.get("role", {}).get("value", ""))
        name = " ".join(str(node.get("name", {}).get("value", "")).split())
        shown = not node.get("ignored") and role not in _TRANSPARENT
        # The text of a link repeats the link's name; once is enough.
        if shown and not (role == "StaticText" and (not name or name in above)):
            yield "  " * min(depth, 20) + _line(role, name, node)
            depth, above = depth + 1, name
        children = [by_id[child] for child in node.get("childIds", []) if child in by_id]
        stack.extend((child, depth, above) for child in reversed(children))


def _line(role: str, name: str, node: dict[str, Any]) -> str:
    if role == "StaticText":
        return name
    parts = [role]
    if name:
        parts.append(f'"{name}"')
    if (value := node.get("value", {}).get("value")) not in (None, ""):
        parts.append(f"value={value!r}")
    for prop in node.get("properties", []):
        state = prop.get("value", {}).get("value")
        if prop["name"] in _STATES and state not in (False, "false", None):
            parts.append(prop["name"] if state in (True, "true") else f"{prop['name']}={state}")
    return " ".join(parts)
