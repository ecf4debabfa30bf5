"""What Chromium itself does with the mouse: the judge of what a mark claims.

Its hit test answers for the top document. For frames, and for where a label leads, listeners in the
page's own world record the path of the last mouse event, in the top document and in every frame of
its origin. Elements are told apart by numbers of the oracle's own.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.node.marks.driving import MarkedSession

_INSTALL = """(() => {
  const oracle = window.oracle ?? (window.oracle = { ids: new WeakMap(), next: 1, last: null });
  const idOf = (node) => {
    if (!oracle.ids.has(node)) oracle.ids.set(node, oracle.next++);
    return oracle.ids.get(node);
  };
  const squeeze = (text) => (text ?? "").replace(/\\s+/g, " ").trim();
  const names = (node) => {
    const attributes = ["aria-label", "alt", "title", "placeholder", "name", "value"];
    const found = attributes.map((name) => node.getAttribute(name));
    found.push(node.innerText ?? node.textContent, node.value);
    for (const label of node.labels ?? []) found.push(label.innerText);
    const root = node.getRootNode();
    for (const id of (node.getAttribute("aria-labelledby") ?? "").split(" ")) {
      found.push(root.getElementById?.(id)?.innerText);
    }
    for (const inner of node.querySelectorAll("[alt], [title], [aria-label]")) {
      found.push(inner.getAttribute("alt"), inner.getAttribute("title"));
    }
    return found.filter((text) => typeof text === "string").map(squeeze);
  };
  oracle.idOf = idOf;
  const describe = (node) => ({ id: idOf(node), tag: node.localName, names: names(node) });
  const elements = (path) => path.filter((node) => node.nodeType === 1).map(describe);
  // The path of the element at a point of the top document; null where that is a frame.
  oracle.at = ([x, y]) => {
    let hit = document.elementFromPoint(x, y);
    while (hit?.shadowRoot) {
      const inner = hit.shadowRoot.elementFromPoint(x, y);
      if (!inner || inner === hit) break;
      hit = inner;
    }
    if (!hit || hit.localName === "iframe") return null;
    const path = [];
    const above = (node) => node.assignedSlot ?? node.parentNode ?? node.host;
    for (let node = hit; node; node = above(node)) path.push(node);
    return elements(path);
  };
  const watch = (view) => {
    if (view.watched) return;
    view.watched = true;
    const record = (event) => { oracle.last = elements(event.composedPath()); };
    for (const type of ["mousemove", "mouseover"]) view.addEventListener(type, record, true);
    for (let n = 0; n < view.length; n++) {
      try { view[n].document && watch(view[n]); } catch { /* of another origin */ }
    }
  };
  watch(window);
})(), 0"""

_AT = """(() => {
  const hit = document.elementFromPoint(%f, %f);
  const foreign = hit?.localName === "iframe" && hit.contentDocument === null;
  return { path: oracle.last, foreign };
})()"""

# What every reader of a page would expect to be labelled: fields, buttons and links that can be
# seen and that the mouse meets in their middle.
_PLAIN = """(() => {
  const found = [];
  const visit = (root) => {
    for (const node of root.querySelectorAll("*")) {
      if (node.shadowRoot) visit(node.shadowRoot);
      if (!node.matches("a[href], button, input:not([type=hidden]), select, textarea")) continue;
      if (node.matches(":disabled") || !node.checkVisibility({ opacityProperty: true })) continue;
      const box = node.getBoundingClientRect();
      if (box.width * box.height > 0.85 * innerWidth * innerHeight) continue;
      const x = (box.left + box.right) / 2;
      const y = (box.top + box.bottom) / 2;
      const hit = root.elementFromPoint(x, y);
      if (hit && node.contains(hit)) found.push([oracle.idOf(node), node.outerHTML.slice(0, 100)]);
    }
  };
  visit(document);
  return found;
})()"""


@dataclass(frozen=True)
class Hit:
    """What the mouse met: the element, then what is around it; or a frame of another origin."""

    path: list[dict[str, Any]]
    is_foreign: bool

    def ids(self) -> set[int]:
        return {node["id"] for node in self.path}

    def matching(self, record: dict[str, Any]) -> list[int]:
        """Return the elements of the path that a record may describe, innermost first."""
        tag = record["tag_name"].partition(",")[0]
        name = record["aria_name"]
        return [
            node["id"]
            for node in self.path
            if node["tag"] == tag and (not name or any(name in text for text in node["names"]))
        ]


class Oracle:
    """Asks Chromium what the mouse meets."""

    def __init__(self, session: MarkedSession) -> None:
        self._session = session

    async def install(self) -> None:
        """Listen in the page that is shown now."""
        await self._session.evaluate(_INSTALL)

    async def at(self, points: list[tuple[float, float]]) -> list[Hit]:
        """Return what the mouse meets at each point."""
        paths = await self._session.evaluate(f"{json.dumps(points)}.map(oracle.at)")
        # Inside frames only a real mouse tells, however they are turned.
        return [
            Hit(path, is_foreign=False) if path else await self._moved_to(point)
            for point, path in zip(points, paths, strict=True)
        ]

    async def _moved_to(self, point: tuple[float, float]) -> Hit:
        return await self._after(point, "hover_coords", x=point[0], y=point[1])

    async def by_label(self, label: str, point: tuple[float, float]) -> Hit:
        """Move the mouse to a label, which is drawn around a point, and return what it met."""
        return await self._after(point, "hover_id", id=label)

    async def plainly_interactive(self) -> dict[int, str]:
        """Return the elements of the top document that have to be labelled."""
        found = await self._session.evaluate(_PLAIN)
        return dict(found)

    async def _after(self, point: tuple[float, float], command: str, **arguments: Any) -> Hit:
        # No event is recorded when the mouse is there already; then the last one still holds.
        await self._session.execute(command, **arguments)
        answer = await self._session.evaluate(_AT % point)
        return Hit(answer["path"] or [], answer["foreign"])
