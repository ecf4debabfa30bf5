// Where elements are and what of them can be seen, in a document and in the frames it can look into.
// Runs in an isolated world, so that the page can neither see nor spoil it; `_page_script.js` and the
// rest share that world. A frame of another origin has a world of its own, whose `base` says where the
// frame lies. All boxes are CSS pixels of the top viewport.
(() => {
  if (globalThis.omnibox) return;

  const FAR_PX = 1000;  // no picture in a link is that much higher than the link's own line
  const FRAMES = new Set(["iframe", "frame", "object"]);

  // ---- boxes ----

  const EVERYWHERE = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
  const intersect = (a, b) => ({
    left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
  });
  const union = (a, b) => ({
    left: Math.min(a.left, b.left), top: Math.min(a.top, b.top),
    right: Math.max(a.right, b.right), bottom: Math.max(a.bottom, b.bottom),
  });
  const isEmpty = (box) => box.right - box.left < 1 || box.bottom - box.top < 1;
  const isWithin = (box, outer) => box.left >= outer.left && box.top >= outer.top &&
    box.right <= outer.right && box.bottom <= outer.bottom;
  const area = (box) => (box.right - box.left) * (box.bottom - box.top);
  const middleX = (box) => (box.left + box.right) / 2;
  const middleY = (box) => (box.top + box.bottom) / 2;

  // ---- tree ----

  const isFrame = (element) => FRAMES.has(element.localName);
  const documentOf = (element) => {
    try { return element.contentDocument; } catch { return null; }
  };
  // The parent in the tree that is laid out: slots and shadow hosts count.
  const parentOf = (element) => {
    if (element.assignedSlot) return element.assignedSlot;
    const parent = element.parentNode;
    if (parent === null) return null;
    if (parent.nodeType === Node.ELEMENT_NODE) return parent;
    return parent.host ?? null;
  };
  const isInside = (hit, element) => {
    for (let node = hit; node; node = parentOf(node)) if (node === element) return true;
    // Light children of a host are its descendants too, whatever slot shows them.
    return element.contains(hit);
  };

  function isAlive(element) {
    if (!element.isConnected) return false;
    const view = element.ownerDocument.defaultView;
    if (!view) return false;
    return view === window || (view.frameElement !== null && isAlive(view.frameElement));
  }

  // ---- frames: how the coordinates of a document become those of the top viewport ----
  //
  // A frame is {matrix, clip, screen}: [a, b, c, d, e, f] as in CSS, the part of the top viewport that
  // the frame can show, and the size of that viewport.

  let base = null;
  // What was measured for the call that is running: the page may move between two calls.
  let frames = new Map();
  let surroundings = new Map();
  function begin(frame) {
    frames = new Map();
    surroundings = new Map();
    base = frame ?? {
      matrix: null, screen: { width: innerWidth, height: innerHeight },
      clip: { left: 0, top: 0, right: innerWidth, bottom: innerHeight },
    };
  }
  const again = () => begin(base?.matrix ? base : null);

  function toTop(frame, box) {
    const { matrix } = frame;
    if (matrix === null) return { left: box.left, top: box.top, right: box.right, bottom: box.bottom };
    const [a, b, c, d, e, f] = matrix;
    const xs = [a * box.left + c * box.top, a * box.right + c * box.top, a * box.left + c * box.bottom, a * box.right + c * box.bottom];
    const ys = [b * box.left + d * box.top, b * box.right + d * box.top, b * box.left + d * box.bottom, b * box.right + d * box.bottom];
    return {
      left: e + Math.min(...xs), right: e + Math.max(...xs), top: f + Math.min(...ys), bottom: f + Math.max(...ys),
    };
  }
  function toLocal(frame, x, y) {
    if (frame.matrix === null) return [x, y];
    const [a, b, c, d, e, f] = frame.matrix;
    const determinant = a * d - b * c;
    return [(d * (x - e) - c * (y - f)) / determinant, (a * (y - f) - b * (x - e)) / determinant];
  }
  const compose = (outer, [a, b, c, d, e, f]) => (outer === null ? [a, b, c, d, e, f] : [
    outer[0] * a + outer[2] * b, outer[1] * a + outer[3] * b, outer[0] * c + outer[2] * d, outer[1] * c + outer[3] * d,
    outer[0] * e + outer[2] * f + outer[4], outer[1] * e + outer[3] * f + outer[5],
  ]);
  // How an element and all around it are scaled and turned; null when they are not turned.
  function turned(element) {
    let matrix = new DOMMatrix();
    for (let node = element; node; node = parentOf(node)) {
      const { rotate, scale, transform } = getComputedStyle(node);
      if (transform !== "none") matrix = new DOMMatrix(transform).multiply(matrix);
      if (scale !== "none") matrix = new DOMMatrix(`scale(${scale.replaceAll(" ", ",")})`).multiply(matrix);
      if (rotate !== "none" && !rotate.includes(" ")) matrix = new DOMMatrix(`rotate(${rotate})`).multiply(matrix);
    }
    if (Math.abs(matrix.b) < 1e-6 && Math.abs(matrix.c) < 1e-6) return null;
    const zoom = element.currentCSSZoom ?? 1;
    return [matrix.a * zoom, matrix.b * zoom, matrix.c * zoom, matrix.d * zoom];
  }
  function frameOf(element, parent) {
    let frame = frames.get(element);
    if (frame !== undefined) return frame;
    const outer = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const width = element.offsetWidth;
    const height = element.offsetHeight;
    const [a, b, c, d] = turned(element) ?? [width ? outer.width / width : 1, 0, 0, height ? outer.height / height : 1];
    const [padLeft, padTop, padRight, padBottom] = [style.paddingLeft, style.paddingTop, style.paddingRight, style.paddingBottom].map(parseFloat);
    // Whatever the transform, the middle of the box stays the middle; all else is relative to it.
    const x = element.clientLeft + padLeft - width / 2;
    const y = element.clientTop + padTop - height / 2;
    const matrix = compose(parent.matrix, [
      a, b, c, d, middleX(outer) + a * x + c * y, middleY(outer) + b * x + d * y,
    ]);
    frame = { matrix, screen: parent.screen, clip: null };
    const inside = { left: 0, top: 0, right: element.clientWidth - padLeft - padRight, bottom: element.clientHeight - padTop - padBottom };
    frame.clip = intersect(toTop(frame, inside), parent.clip);
    frames.set(element, frame);
    return frame;
  }
  const frameAround = (element) => {
    const view = element.ownerDocument.defaultView;
    return view === window ? base : frameOf(view.frameElement, frameAround(view.frameElement));
  };

  // ---- hit test: the element the mouse would meet at a point ----

  function hitTest(x, y) {
    let root = document;
    let frame = base;
    let hit = null;
    let [localX, localY] = toLocal(frame, x, y);
    for (;;) {
      const found = root.elementFromPoint(localX, localY);
      if (found === null || found === hit) return hit;
      hit = found;
      if (hit.shadowRoot) {
        root = hit.shadowRoot;
        continue;
      }
      const inner = isFrame(hit) ? documentOf(hit) : null;
      if (!inner) return hit;
      frame = frameOf(hit, frame);
      [localX, localY] = toLocal(frame, x, y);
      root = inner;
    }
  }
  const isHit = (element, x, y) => {
    const hit = hitTest(x, y);
    return hit !== null && isInside(hit, element);
  };
  const isHitInMiddle = (element, box) => isHit(element, middleX(box), middleY(box));

  // ---- where an element can be seen ----

  // The box of an inline link is its line, not the picture or the heading in it.
  function outerBox(element, frame) {
    if (element.localName === "area") return areaBox(element, frame);
    const own = element.getBoundingClientRect();
    if (Math.abs(own.top) < FAR_PX && element.firstElementChild && (element.localName === "a" || own.width === 0)) {
      let box = own.width === 0 ? null : own;
      for (let child = element.firstElementChild; child; child = child.nextElementSibling) {
        const rect = child.getBoundingClientRect();
        if (rect.width >= 1 && rect.height >= 1) box = box ? union(box, rect) : rect;
      }
      if (box && !isWithin(box, own) && /^(inline|contents)$/.test(getComputedStyle(element).display)) return toTop(frame, box);
    }
    return toTop(frame, own);
  }
  function areaBox(element, frame) {
    const name = element.closest("map")?.name;
    const image = name ? element.getRootNode().querySelector(`img[usemap="#${CSS.escape(name)}"]`) : null;
    if (!image) return { left: 0, top: 0, right: 0, bottom: 0 };
    const outer = image.getBoundingClientRect();
    const style = getComputedStyle(image);
    const left = outer.left + image.clientLeft + parseFloat(style.paddingLeft);
    const top = outer.top + image.clientTop + parseFloat(style.paddingTop);
    const numbers = element.coords.split(",").map(Number);
    if (element.shape === "default") return toTop(frame, outer);
    if (element.shape === "circle") {
      const [x, y, r] = numbers;
      return toTop(frame, { left: left + x - r, top: top + y - r, right: left + x + r, bottom: top + y + r });
    }
    const xs = numbers.filter((_, index) => index % 2 === 0);
    const ys = numbers.filter((_, index) => index % 2 === 1);
    return toTop(frame, {
      left: left + Math.min(...xs), top: top + Math.min(...ys), right: left + Math.max(...xs), bottom: top + Math.max(...ys),
    });
  }

  const isRootOrBody = (node) => node === node.ownerDocument.documentElement || node === node.ownerDocument.body;
  // What the clipping ancestors leave to see of what is in them, and the nearest one that scrolls.
  const NOTHING_AROUND = { clip: EVERYWHERE, scroller: null };
  function around(element, frame) {
    const path = [];
    let node = parentOf(element);
    while (node !== null && !isRootOrBody(node) && !surroundings.has(node)) {
      path.push(node);
      node = parentOf(node);
    }
    let known = (node !== null && surroundings.get(node)) || NOTHING_AROUND;
    for (const ancestor of path.reverse()) {
      const { overflowX, overflowY } = getComputedStyle(ancestor);
      if (overflowX !== "visible" || overflowY !== "visible") {
        const box = toTop(frame, ancestor.getBoundingClientRect());
        const scroller = /auto|scroll/.test(overflowX + overflowY) ? box : known.scroller;
        known = { clip: intersect(known.clip, box), scroller };
      }
      surroundings.set(ancestor, known);
    }
    return known;
  }

  // The part of the element that a click in its middle would reach, or null.
  function visibleBox(element, frame, outer) {
    const onScreen = intersect(outer, frame.clip);
    if (isEmpty(onScreen)) return null;
    const clipped = intersect(onScreen, around(element, frame).clip);
    if (!isEmpty(clipped) && isHitInMiddle(element, clipped)) return clipped;
    // What is positioned may lie outside of the boxes that its ancestors clip to.
    if (clipped.right - clipped.left < onScreen.right - onScreen.left || clipped.bottom - clipped.top < onScreen.bottom - onScreen.top) {
      if (isHitInMiddle(element, onScreen)) return onScreen;
      if (isEmpty(clipped)) return null;
    }
    const parts = [...element.getClientRects()].map((rect) => intersect(toTop(frame, rect), clipped));
    if (parts.length > 1) {
      parts.sort((a, b) => area(b) - area(a));
      for (const part of parts.slice(0, 8)) if (!isEmpty(part) && isHitInMiddle(element, part)) return part;
    }
    return uncovered(element, clipped);
  }
  // The largest part of a box that nothing covers, found by trying a grid of points.
  function uncovered(element, box) {
    if (isCovered(element, box)) return null;
    const width = box.right - box.left;
    const height = box.bottom - box.top;
    const columns = Math.max(1, Math.min(8, Math.floor(width / 4)));
    const rows = Math.max(1, Math.min(8, Math.floor(height / 4)));
    const stepX = width / columns;
    const stepY = height / rows;
    const free = [];
    for (let row = 0; row < rows; row++) {
      free.push([]);
      for (let column = 0; column < columns; column++) {
        free[row].push(isHit(element, box.left + (column + 0.5) * stepX, box.top + (row + 0.5) * stepY));
      }
    }
    const part = largest(free, (left, top, right, bottom) => ({
      left: box.left + left * stepX, top: box.top + top * stepY, right: box.left + right * stepX, bottom: box.top + bottom * stepY,
    }), (candidate) => isHitInMiddle(element, candidate));
    return part && sharpened(element, part);
  }
  // One thing over all of it: the page behind a modal need not be searched for holes.
  function isCovered(element, box) {
    if (element.localName === "area" || element instanceof SVGElement) return false;  // not boxes themselves
    const cover = hitTest(middleX(box), middleY(box));
    if (cover === null || !isWithin(box, toTop(frameAround(cover), cover.getBoundingClientRect()))) return false;
    const insetX = Math.min(2, (box.right - box.left) / 4);
    const insetY = Math.min(2, (box.bottom - box.top) / 4);
    for (const x of [box.left + insetX, box.right - insetX]) {
      for (const y of [box.top + insetY, box.bottom - insetY]) {
        const hit = hitTest(x, y);
        if (hit === null || !isInside(hit, cover) || isInside(hit, element)) return false;
      }
    }
    return true;
  }
  // The largest rectangle of cells that are all free and that the test accepts.
  function largest(free, boxOf, accepts) {
    const candidates = [];
    for (let top = 0; top < free.length; top++) {
      let rows = free[top].map(() => true);
      for (let bottom = top + 1; bottom <= free.length; bottom++) {
        rows = rows.map((all, column) => all && free[bottom - 1][column]);
        for (let left = 0, right = 0; right <= rows.length; right++) {
          if (rows[right]) continue;
          if (right > left) candidates.push(boxOf(left, top, right, bottom));
          left = right + 1;
        }
      }
    }
    candidates.sort((a, b) => area(b) - area(a));
    for (const candidate of candidates) if (!isEmpty(candidate) && accepts(candidate)) return candidate;
    return null;
  }
  // Move each edge in to where the element really begins, as seen from the middle.
  function sharpened(element, box) {
    const x = middleX(box);
    const y = middleY(box);
    const edge = (from, to, hits) => {
      if (hits(to + Math.sign(from - to) / 2)) return to;
      let free = from;
      let covered = to;
      while (Math.abs(free - covered) > 1) {
        const between = (free + covered) / 2;
        if (hits(between)) free = between;
        else covered = between;
      }
      return free;
    };
    const sharp = {
      left: edge(x, box.left, (at) => isHit(element, at, y)), right: edge(x, box.right, (at) => isHit(element, at, y)),
      top: edge(y, box.top, (at) => isHit(element, x, at)), bottom: edge(y, box.bottom, (at) => isHit(element, x, at)),
    };
    return !isEmpty(sharp) && isHitInMiddle(element, sharp) ? sharp : box;
  }

  globalThis.omnibox = {
    intersect, isEmpty, area, middleX, middleY, isFrame, documentOf, parentOf, isInside, isAlive,
    begin, again, frameOf, frameAround, hitTest, outerBox, around, visibleBox, topFrame: () => base,
  };
})();
