// Finds, labels, draws and locates the interactive elements of a document and of the frames it can look
// into. Runs in an isolated world, so that the page can neither see nor spoil it. A frame of another
// origin has a world of its own, whose `base` says where the frame lies. All boxes are CSS pixels of
// the top viewport. `_draw_script.js` and `_act_script.js` share the world and build upon this one.
//
// Marking is on the path of every step: what is asked of an element is asked in the order of its
// cost, and nothing is asked of an element whose box already says that it cannot be seen.
(() => {
  if (globalThis.omnibox) return;

  const MAX_ELEMENTS = 30000;  // beyond, only what the selector finds is looked at
  const MAX_VISITED = 50000;   // of that
  const MAX_OFFSCREEN = 500;   // labels above the screen, and below it
  const MAX_OPTIONS = 500;     // labels in one drop-down
  const MAX_NAME = 200;
  const FAR_PX = 1500;         // no picture in a link is that much higher than the link's own line
  const HUGE = 0.9;            // of the screen: a page's own background, not a thing to point at
  const SELECTOR = "a[*|href],area[href],button,input,select,textarea,summary,[onclick],[role]," +
    "[contenteditable]:not([contenteditable='false' i]),[tabindex]:not([tabindex^='-'])," +
    "video[controls],audio[controls],iframe,frame,object";
  const WITHOUT_ROLE = SELECTOR.replace("[role],", "");
  const ROLES = new Set(("scrollbar searchbox slider spinbutton switch tab treeitem button checkbox gridcell " +
    "link menuitem menuitemcheckbox menuitemradio option progressbar radio textbox combobox menu tree " +
    "treegrid grid listbox radiogroup widget").split(" "));
  const PASSIVE_CURSORS = new Set("auto default none text vertical-text not-allowed no-drop wait progress".split(" "));
  const FRAMES = new Set(["iframe", "frame", "object"]);
  const CONTROLS = new Set(["input", "select", "textarea"]);
  const FORM_TAGS = new Set(["button", "input", "select", "textarea", "option"]);
  // Inside of these the cursor says nothing: a click there is a click on them.
  const WHOLE = new Set(["a", "button", "summary", "select", "input", "textarea"]);
  const INPUT_ROLES = {
    button: "button", reset: "button", submit: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", email: "textbox",
    tel: "textbox", text: "textbox", url: "textbox", password: "textbox",
  };
  const TAG_ROLES = {
    a: "link", area: "link", button: "button", select: "combobox", option: "option",
    textarea: "textbox", summary: "button", search: "search",
  };

  // Label -> element, from the last marked screenshot on; `info` is what that screenshot showed.
  let labels = new Map();
  let labelOf = new WeakMap();
  let info = null;

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

  // ---- frames: how the coordinates of a document become those of the top viewport ----
  //
  // A frame is {matrix, clip, screen}: [a, b, c, d, e, f] as in CSS, the part of the top viewport that
  // the frame can show, and the size of that viewport.

  let base = null;
  // What was measured for the call that is running: the page may move between two calls.
  let frames = new Map();
  let surroundings = new Map();
  let labelsIn = new Map();
  function begin(frame) {
    frames = new Map();
    surroundings = new Map();
    labelsIn = new Map();
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

  // ---- discovery ----

  const isDisabled = (element) => FORM_TAGS.has(element.localName) &&
    (element.matches(":disabled") || (element.localName === "input" && element.type === "hidden"));
  // Of what the selector finds, a role alone does not say that an element can be acted upon.
  function isInteractive(element) {
    const role = element.getAttribute("role");
    if (role !== null && !ROLES.has(role.trim().split(/\s+/, 1)[0].toLowerCase()) && !element.matches(WITHOUT_ROLE)) return false;
    return !isDisabled(element);
  }
  // A label stands in for a control that cannot be clicked itself, as with painted check boxes.
  function isStandIn(label, frame) {
    const control = label.control;
    if (!control || isDisabled(control)) return false;
    const box = outerBox(control, frame);
    if (isEmpty(box) || box.right <= frame.clip.left || box.left >= frame.clip.right) return true;
    return box.bottom > frame.clip.top && box.top < frame.clip.bottom && visibleBox(control, frame, box) === null;
  }
  const cursorOf = (element) => getComputedStyle(element).cursor;
  const isPassive = (cursor) => PASSIVE_CURSORS.has(cursor.startsWith("url(") ? cursor.slice(cursor.lastIndexOf(",") + 2) : cursor);
  // Whether the element, not one around it, gives the mouse a cursor that promises something.
  function invites(element) {
    const cursor = cursorOf(element);
    if (isPassive(cursor)) return false;
    const parent = parentOf(element);
    // On the page as a whole it promises nothing; a frame may well be one link as a whole.
    return parent === null ? element.ownerDocument !== document || base.matrix !== null : cursorOf(parent) !== cursor;
  }
  // What is not rendered has no box, and neither has anything in it, unless it leaves the boxes to its
  // children. Its style would say so, but the style of what is not rendered is dear.
  function lendsItsBox(element, depth = 3) {
    if (depth === 0) return false;
    let child = element.firstElementChild;
    for (let n = 0; child !== null && n < 5; n++, child = child.nextElementSibling) {
      if (child.checkVisibility() || lendsItsBox(child, depth - 1)) return true;
    }
    return false;
  }
  const isRendered = (element) => element.checkVisibility() || lendsItsBox(element);
  function isSeen(element) {
    if (element.localName === "area") return true;
    const options = { visibilityProperty: true, opacityProperty: !CONTROLS.has(element.localName) };
    return element.checkVisibility(options) || (lendsItsBox(element) && element.firstElementChild.checkVisibility(options));
  }

  function collect() {
    const found = { visible: [], above: [], below: [], listed: [], foreign: [] };
    walk(document, base, { left: MAX_ELEMENTS, visits: MAX_VISITED }, found);
    return found;
  }
  function walk(root, frame, budget, found) {
    const wanted = root.querySelectorAll(SELECTOR);
    const walker = (root.ownerDocument ?? root).createTreeWalker(root, NodeFilter.SHOW_ELEMENT);
    let next = 0;
    let element = walker.nextNode();
    while (element !== null && --budget.left >= 0) {
      const name = element.localName;
      let skips = false;
      if (element === wanted[next]) {
        next += 1;
        visit(element, frame, budget, found);
        skips = WHOLE.has(name);
        if (skips) while (next < wanted.length && element.contains(wanted[next])) visit(wanted[next++], frame, budget, found);
      } else if (!isRendered(element)) {
        skips = true;
        while (next < wanted.length && element.contains(wanted[next])) next += 1;
      } else if (invites(element) || (name === "label" && isStandIn(element, frame))) {
        place(element, frame, found);
      }
      if (!skips && element.shadowRoot !== null) walk(element.shadowRoot, frame, budget, found);
      element = skips ? nextOutside(walker) : walker.nextNode();
    }
    while (next < wanted.length && budget.visits > 0) visit(wanted[next++], frame, budget, found);
  }
  function nextOutside(walker) {
    let sibling = walker.nextSibling();
    while (sibling === null && walker.parentNode() !== null) sibling = walker.nextSibling();
    return sibling;
  }
  function visit(element, frame, budget, found) {
    budget.visits -= 1;
    if (isFrame(element)) enter(element, frame, budget, found);
    else if (isInteractive(element)) place(element, frame, found);
    if (element.localName === "select") placeOptions(element, frame, found);
  }
  function enter(element, frame, budget, found) {
    if (element.getClientRects().length === 0 || !isSeen(element)) return;
    const inner = documentOf(element);
    if (inner?.documentElement) walk(inner, frameOf(element, frame), budget, found);
    else if (inner === null && element.localName !== "object") noteForeign(element, frame, found);
  }

  function place(element, frame, found) {
    const outer = outerBox(element, frame);
    if (isEmpty(outer) || area(outer) > HUGE * frame.screen.width * frame.screen.height) return;
    let side = null;
    if (isEmpty(intersect(outer, frame.clip))) {
      side = sideOfScreen(element, frame, outer);
    } else {
      const box = visibleBox(element, frame, outer);
      if (box !== null) {
        if (isSeen(element)) found.visible.push({ element, box });
        return;
      }
      side = sideOfScroller(element, frame, outer);
    }
    if (side !== null && found[side].length < MAX_OFFSCREEN && isSeen(element)) found[side].push({ element, box: outer });
  }
  function sideOfScreen(element, frame, outer) {
    const middle = middleX(outer);
    if ((middle < 0 || middle >= frame.screen.width) && around(element, frame).scroller === null) return null;
    if (outer.bottom <= frame.clip.top + 1) return "above";
    if (outer.top >= frame.clip.bottom - 1) return "below";
    return sideOfScroller(element, frame, outer);
  }
  function sideOfScroller(element, frame, outer) {
    const { scroller } = around(element, frame);
    if (scroller === null) return null;
    if (scroller.bottom <= frame.clip.top) return "above";
    if (middleY(outer) < scroller.top || middleX(outer) < scroller.left) return "above";
    return middleY(outer) > scroller.bottom || middleX(outer) > scroller.right ? "below" : null;
  }
  // The options of a closed drop-down have no box: while it has the focus they are listed, never drawn.
  function placeOptions(select, frame, found) {
    if (isDisabled(select) || !isSeen(select)) return;
    const isOpen = select.getRootNode().activeElement === select || select.hasAttribute("open");
    const isList = select.multiple || select.size > 1;
    if (!isOpen && !isList) return;
    for (const option of [...select.options].slice(0, MAX_OPTIONS)) {
      if (option.matches(":disabled") || option.hidden) continue;
      if (option.getClientRects().length > 0) place(option, frame, found);
      else if (isOpen) found.listed.push({ element: option, box: null });
    }
  }

  // Frames of another origin, in the order they were first seen; an index is for the document's life,
  // and an element that was taken out and put back shows another frame.
  const foreign = [];
  const WORLD = Math.random().toString(36).slice(2);
  function noteForeign(element, parent, found) {
    const frame = frameOf(element, parent);
    if (isEmpty(frame.clip)) return;
    const view = element.contentWindow;
    let index = foreign.findIndex((known) => known.element === element && known.view === view);
    if (index < 0) index = foreign.push({ element, view }) - 1;
    found.foreign.push({ index, key: `${WORLD}:${index}`, frame, at: found.visible.length });
  }
  function geometry(index) {
    again();
    const { element, view } = foreign[index];
    return isAlive(element) && element.contentWindow === view ? frameOf(element, frameAround(element)) : null;
  }
  // Whether a click at each point would go into that frame.
  const reaches = (index, points) => points.map(([x, y]) => hitTest(x, y) === foreign[index].element);
  const foreignElement = (index) => foreign[index].element;
  const rebase = (frame) => begin(frame);

  // ---- records ----

  const clean = (text) => (text ? text.slice(0, 10 * MAX_NAME).replace(/\s+/g, " ").trim().slice(0, MAX_NAME) : "");
  const textOf = (element) => element.innerText ?? element.textContent ?? "";
  // The text of a label, without the options or the text in the control that it wraps.
  function labelText(node, control) {
    if (node === control) return "";
    if (!node.contains(control)) return node.nodeType === Node.TEXT_NODE ? node.data : textOf(node);
    return [...node.childNodes].map((child) => labelText(child, control)).join(" ");
  }
  // All labels of a document at once: asking a control for its own searches the whole document.
  function labelsOf(element, root) {
    let known = labelsIn.get(root);
    if (known === undefined) {
      known = new Map();
      for (const label of root.querySelectorAll("label")) {
        const control = label.control;
        if (control) known.set(control, [...(known.get(control) ?? []), label]);
      }
      labelsIn.set(root, known);
    }
    return known.get(element) ?? [];
  }
  function nameOf(element) {
    const root = element.getRootNode();
    const byIds = (ids) => ids.split(/\s+/).map((id) => textOf(root.getElementById?.(id) ?? {})).join(" ");
    const attribute = (name) => clean(element.getAttribute(name));
    const ids = element.getAttribute("aria-labelledby");
    const isControl = CONTROLS.has(element.localName);
    return attribute("aria-label") || (ids && clean(byIds(ids))) ||
      clean(labelsOf(element, root).map((label) => labelText(label, element)).join(" ")) ||
      attribute("alt") || (isControl ? "" : clean(textOf(element))) || attribute("title") || attribute("placeholder") ||
      (/^(button|submit|reset)$/.test(element.type) ? clean(element.value) : "") || pictureName(element) || attribute("name");
  }
  function pictureName(element) {
    const picture = element.querySelector("[aria-label],[alt],[title]");
    if (!picture) return "";
    return clean(picture.getAttribute("aria-label")) || clean(picture.getAttribute("alt")) || clean(picture.getAttribute("title"));
  }
  function valueOf(element) {
    switch (element.localName) {
      case "select": return clean([...element.selectedOptions].map((option) => option.text).join(", "));
      case "option": return element.selected ? "selected" : "";
      case "textarea": return clean(element.value);
      case "input":
        if (element.type === "checkbox" || element.type === "radio") return element.checked ? "checked" : "";
        if (element.type === "password") return element.value ? "•".repeat(8) : "";
        return clean(element.value);
      default:
        if (element.isContentEditable) return clean(textOf(element));
        if (element.getAttribute("aria-checked") === "true") return "checked";
        if (element.getAttribute("aria-selected") === "true") return "selected";
        return clean(element.getAttribute("aria-valuetext") ?? element.getAttribute("aria-valuenow"));
    }
  }
  function roleOf(element) {
    const explicit = element.getAttribute("role");
    if (explicit) return explicit.trim().split(/\s+/, 1)[0];
    if (element.localName === "input") return INPUT_ROLES[element.type] ?? "";
    return TAG_ROLES[element.localName] ?? "";
  }
  const round = (value) => Math.round(value * 100) / 100;
  const rectRecord = (box) => ({
    x: round(box.left), y: round(box.top), width: round(box.right - box.left), height: round(box.bottom - box.top),
    top: round(box.top), right: round(box.right), bottom: round(box.bottom), left: round(box.left),
  });
  const record = ({ element, box }) => ({
    tag_name: element.localName === "input" && element.hasAttribute("type") ? `input, type=${element.type}` : element.localName,
    role: roleOf(element), aria_name: nameOf(element), value: valueOf(element),
    v_scrollable: element.scrollHeight - element.clientHeight >= 1,
    rects: box ? [rectRecord(box)] : [],
  });

  // ---- labels ----

  const KINDS = ["visible", "listed", "above", "below"];
  let found = null;

  function assign(element, next) {
    const known = labelOf.get(element);
    if (known !== undefined) return known;
    labelOf.set(element, next);
    labels.set(next, element);
    return next;
  }
  const regions = (pairs) => Object.fromEntries(pairs.map(([label, item]) => [String(label), record(item)]));
  const keys = (pairs) => pairs.map(([label]) => String(label));

  // Find what can be labelled; `number` gives the labels, once all worlds of the page were surveyed.
  function survey(frame) {
    omnibox.erase();
    begin(frame);
    found = collect();
    return {
      visible: found.visible.map(({ box }) => [box.left, box.top, box.right, box.bottom]),
      listed: found.listed.length, above: found.above.length, below: found.below.length, foreign: found.foreign,
    };
  }
  // Label the survey's finds and remember what was shown: the visible ones by a list of labels, in
  // which 0 stands for what the page above covers, each other kind from its first number on.
  function number(visible, first) {
    labels = new Map();
    labelOf = new WeakMap();
    info = { visible: [] };
    found.visible.forEach((item, index) => {
      if (visible[index] !== 0) info.visible.push([assign(item.element, visible[index]), item]);
    });
    for (const kind of KINDS.slice(1)) info[kind] = found[kind].map((item, index) => [assign(item.element, first[kind] + index), item]);
    return {
      visible_rects: [...keys(info.visible), ...keys(info.listed)],
      rects_above: keys(info.above), rects_below: keys(info.below),
      interactive_regions: { ...regions(info.visible), ...regions(info.listed) },
    };
  }
  // The common case, a page without frames of another origin, in one call.
  function mark() {
    const surveyed = survey(null);
    if (surveyed.foreign.length > 0) return { surveyed };
    const { visible, listed, above } = found;
    const first = { listed: 1 + visible.length };
    first.above = first.listed + listed.length;
    first.below = first.above + above.length;
    const marks = number(visible.map((_, index) => index + 1), first);
    omnibox.draw(info.visible.map(([label, { box }]) => [label, box.left, box.top, box.right, box.bottom]));
    return { marks };
  }
  // The records that marking left out, since few ask for them; null where nothing was marked.
  const offscreen = () => (info === null ? null : { ...regions(info.above), ...regions(info.below) });
  // Labels already given stay what they are; elements that have none get numbers from `next` on.
  function extend(keep, next) {
    const visible = keep === null ? found.visible : found.visible.filter((_, index) => keep[index]);
    const pairs = [...visible, ...found.listed, ...found.above, ...found.below].map((item) => {
      const label = assign(item.element, next);
      if (label === next) next += 1;
      return [label, item];
    });
    return { regions: regions(pairs), next };
  }

  // ---- from a label to its element ----

  function isAlive(element) {
    if (!element.isConnected) return false;
    const view = element.ownerDocument.defaultView;
    if (!view) return false;
    return view === window || (view.frameElement !== null && isAlive(view.frameElement));
  }
  function find(label) {
    const element = labels.get(Number(label));
    if (element === undefined) return { problem: "unknown" };
    return isAlive(element) ? { element } : { problem: "gone" };
  }
  const isLabelled = (element) => labelOf.has(element);

  globalThis.omnibox = {
    survey, number, mark, extend, offscreen, geometry, reaches, foreignElement, rebase,
    find, isLabelled, again, frameAround, outerBox, visibleBox, hitTest, isInside, parentOf, isEmpty, clean, nameOf,
  };
})();
