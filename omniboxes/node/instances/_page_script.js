// Finds, labels, draws and locates the interactive elements of a document and of the frames it can look
// into. Runs in an isolated world, so that the page can neither see nor spoil it. A frame of another
// origin has a world of its own, whose `base` says where the frame lies. All coordinates are CSS
// pixels of the top viewport.
(() => {
  if (globalThis.omnibox) return;

  const MAX_ELEMENTS = 30000;   // beyond, only what selectors find cheaply is looked at
  const MAX_OFFSCREEN = 500;
  const MAX_NAME = 200;
  const SELECTOR = "a[href],area[href],button,input,select,textarea,option,summary,[href],[onclick]," +
    "[contenteditable]:not([contenteditable='false']),[tabindex]:not([tabindex='-1']),[role]";
  const WITHOUT_ROLE = SELECTOR.replace(",[role]", "");
  const ROLES = new Set(("scrollbar searchbox slider spinbutton switch tab treeitem button checkbox gridcell " +
    "link menuitem menuitemcheckbox menuitemradio option progressbar radio textbox combobox menu tree " +
    "treegrid grid listbox radiogroup widget").split(" "));
  const PASSIVE_CURSORS = new Set(("auto default none text vertical-text not-allowed no-drop").split(" "));
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

  // ---- frames: a frame is {left, top, scaleX, scaleY, clip, screen}, null for the top ----

  let base = null;
  const viewport = () => base?.clip ?? { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
  const screenSize = () => base?.screen ?? { width: innerWidth, height: innerHeight };
  const intersect = (a, b) => ({
    left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
  });
  const isEmpty = (box) => box.right - box.left < 1 || box.bottom - box.top < 1;
  const toTop = (frame, box) => (frame === null ? box : {
    left: frame.left + box.left * frame.scaleX, right: frame.left + box.right * frame.scaleX,
    top: frame.top + box.top * frame.scaleY, bottom: frame.top + box.bottom * frame.scaleY,
  });
  const plain = (rect) => ({ left: rect.left, top: rect.top, right: rect.right, bottom: rect.bottom });

  function frameOf(element, parent) {
    const outer = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const scaleX = element.offsetWidth ? outer.width / element.offsetWidth : 1;
    const scaleY = element.offsetHeight ? outer.height / element.offsetHeight : 1;
    const left = outer.left + (element.clientLeft + parseFloat(style.paddingLeft)) * scaleX;
    const top = outer.top + (element.clientTop + parseFloat(style.paddingTop)) * scaleY;
    const width = element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = element.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    const box = toTop(parent, { left, top, right: left + width * scaleX, bottom: top + height * scaleY });
    return {
      left: box.left, top: box.top, screen: screenSize(),
      scaleX: scaleX * (parent?.scaleX ?? 1), scaleY: scaleY * (parent?.scaleY ?? 1),
      clip: intersect(box, parent?.clip ?? viewport()),
    };
  }

  const documentOf = (element) => {
    try { return element.contentDocument; } catch { return null; }
  };
  const isFrame = (element) => element.localName === "iframe" || element.localName === "frame";

  // ---- hit test: the element the mouse would meet at a point ----

  function hitTest(x, y) {
    let root = document;
    let localX = base ? (x - base.left) / base.scaleX : x;
    let localY = base ? (y - base.top) / base.scaleY : y;
    let hit = null;
    for (;;) {
      const found = root.elementFromPoint(localX, localY);
      if (found === null || found === hit) return hit;
      hit = found;
      const inner = isFrame(hit) ? documentOf(hit) : null;
      if (inner) {
        const frame = frameOf(hit, null);
        localX = (localX - frame.left) / frame.scaleX;
        localY = (localY - frame.top) / frame.scaleY;
        root = inner;
      } else if (hit.shadowRoot) {
        root = hit.shadowRoot;
      } else {
        return hit;
      }
    }
  }

  const parentOf = (element) => {
    if (element.assignedSlot) return element.assignedSlot;
    if (element.parentElement) return element.parentElement;
    const root = element.getRootNode();
    return root instanceof ShadowRoot || root.host ? root.host : null;
  };
  const covers = (element, hit) => {
    for (let node = hit; node; node = parentOf(node)) if (node === element) return true;
    // Light children of a host are its descendants too, whatever slot shows them.
    for (let node = hit; node; node = node.parentElement) if (node === element) return true;
    return false;
  };
  const hits = (element, box) => covers(element, hitTest((box.left + box.right) / 2, (box.top + box.bottom) / 2));

  // ---- boxes ----

  const union = (a, b) => ({
    left: Math.min(a.left, b.left), top: Math.min(a.top, b.top),
    right: Math.max(a.right, b.right), bottom: Math.max(a.bottom, b.bottom),
  });
  // The box of an inline link is its line, not the picture or the heading in it.
  function outerBox(element, frame) {
    let box = plain(element.getBoundingClientRect());
    if (element.firstElementChild && element.localName === "a" && getComputedStyle(element).display === "inline") {
      for (const child of element.children) {
        const rect = child.getBoundingClientRect();
        if (rect.width >= 1 && rect.height >= 1) box = union(box, plain(rect));
      }
    }
    return toTop(frame, box);
  }
  const rectsOf = (element, frame) => {
    const parts = [...element.getClientRects()].slice(0, 8).map((rect) => toTop(frame, plain(rect)));
    return parts.length > 1 ? [outerBox(element, frame), ...parts] : [outerBox(element, frame)];
  };

  // What the scrolling and clipping ancestors leave of a box, and whether one of them scrolls.
  function clipped(element, frame, box) {
    let left = box;
    let scrolls = false;
    for (let node = parentOf(element); node && node !== node.ownerDocument.documentElement; node = parentOf(node)) {
      const style = getComputedStyle(node);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      if (node === node.ownerDocument.body) continue;
      left = intersect(left, toTop(frame, plain(node.getBoundingClientRect())));
      if (/auto|scroll/.test(style.overflowX + style.overflowY)) scrolls = true;
    }
    return { box: left, scrolls };
  }

  function* pieces(box) {
    const { left, top, right, bottom } = box;
    const middleX = (left + right) / 2;
    const middleY = (top + bottom) / 2;
    yield box;
    yield { left, top, right, bottom: middleY };
    yield { left, top: middleY, right, bottom };
    yield { left, top, right: middleX, bottom };
    yield { left: middleX, top, right, bottom };
    const stepX = (right - left) / 4;
    const stepY = (bottom - top) / 4;
    for (let row = 0; row < 4; row++) {
      for (let column = 0; column < 4; column++) {
        yield {
          left: left + column * stepX, right: left + (column + 1) * stepX,
          top: top + row * stepY, bottom: top + (row + 1) * stepY,
        };
      }
    }
  }

  // The part of the element that a click at its middle would reach, or null.
  function visibleBox(element, frame) {
    const clip = frame?.clip ?? viewport();
    const rects = rectsOf(element, frame);
    for (const rect of rects) {
      const box = intersect(rect, clip);
      if (!isEmpty(box) && hits(element, box)) return box;
    }
    for (const rect of rects) {
      const box = intersect(clipped(element, frame, rect).box, clip);
      if (isEmpty(box)) continue;
      for (const piece of pieces(box)) if (!isEmpty(piece) && hits(element, piece)) return piece;
    }
    return null;
  }

  // ---- discovery ----

  const hasRole = (element) => {
    const role = element.getAttribute("role");
    return role !== null && ROLES.has(role.trim().split(/\s+/)[0].toLowerCase());
  };
  const cursorOf = (element) => getComputedStyle(element).cursor;
  function introducesCursor(element) {
    const cursor = cursorOf(element);
    if (PASSIVE_CURSORS.has(cursor)) return false;
    const parent = parentOf(element);
    return parent === null || cursorOf(parent) !== cursor;
  }
  function isInteractive(element, withCursor) {
    if (element.matches(WITHOUT_ROLE) || hasRole(element)) return true;
    return withCursor && introducesCursor(element);
  }
  const isDisabled = (element) => element.matches(":disabled") ||
    (element.localName === "input" && element.type === "hidden");

  // Frames of another origin, in the order they were first seen; an index is for the document's life.
  const foreign = [];
  const foreignIndex = (element) => {
    const known = foreign.indexOf(element);
    return known >= 0 ? known : foreign.push(element) - 1;
  };
  const foreignFrames = () => foreign.map((element, index) => ({ element, index }))
    .filter(({ element }) => isAlive(element) && documentOf(element) === null && element.getClientRects().length > 0)
    .map(({ element, index }) => ({ index, frame: frameOf(element, chain(element)) }))
    .filter(({ frame }) => !isEmpty(frame.clip));
  const geometry = (index) => frameOf(foreign[index], chain(foreign[index]));
  // Whether a click at each point would go into that frame.
  const reaches = (index, points) => points.map(([x, y]) => hitTest(x, y) === foreign[index]);
  const foreignElement = (index) => foreign[index];
  const rebase = (frame) => { base = frame; };

  function* elements(root, frame, budget) {
    for (const element of root.querySelectorAll("*")) {
      if (--budget.left < 0 && !element.matches(SELECTOR) && !isFrame(element)) continue;
      yield { element, frame };
      if (element.shadowRoot) yield* elements(element.shadowRoot, frame, budget);
      const inner = isFrame(element) ? documentOf(element) : null;
      if (!isFrame(element) || element.getClientRects().length === 0) continue;
      if (inner?.documentElement) yield* elements(inner, frameOf(element, frame), budget);
      else if (inner === null) foreignIndex(element);
    }
  }

  function place(element, frame) {
    if (element.localName === "option") return placeOption(element, frame);
    if (!element.checkVisibility({ visibilityProperty: true })) return null;
    const outer = outerBox(element, frame);
    const screen = screenSize();
    if (isEmpty(outer)) return null;
    if ((outer.right - outer.left) * (outer.bottom - outer.top) > 0.9 * screen.width * screen.height) return null;
    return placeBox(element, frame, outer);
  }
  function placeBox(element, frame, outer) {
    const clip = frame?.clip ?? viewport();
    const inside = intersect(outer, clip);
    if (!isEmpty(inside)) {
      const box = visibleBox(element, frame);
      if (box) return { where: "visible", box };
      const { box: rest, scrolls } = clipped(element, frame, outer);
      if (!scrolls || !isEmpty(rest)) return null;
      return { where: outer.top < rest.top ? "above" : "below", box: outer };
    }
    const middle = (outer.left + outer.right) / 2;
    if (middle < 0 || middle >= screenSize().width) return null;
    if (outer.bottom <= clip.top + 1) return { where: "above", box: outer };
    return outer.top >= clip.bottom - 1 ? { where: "below", box: outer } : null;
  }
  // The options of a closed drop-down have no box: they are listed, never drawn.
  function placeOption(element, frame) {
    const select = element.closest("select");
    if (!select || select.disabled) return null;
    const outer = toTop(frame, plain(element.getBoundingClientRect()));
    if (!isEmpty(outer)) return placeBox(element, frame, outer);
    const focused = select.getRootNode().activeElement === select;
    return focused || select.hasAttribute("open") ? { where: "listed", box: null } : null;
  }

  function collect() {
    const found = { visible: [], above: [], below: [], listed: [] };
    const budget = { left: MAX_ELEMENTS };
    for (const { element, frame } of elements(document, base, budget)) {
      if (element === overlay || !isInteractive(element, budget.left > 0) || isDisabled(element)) continue;
      const placed = place(element, frame);
      if (!placed) continue;
      const list = found[placed.where];
      if (placed.where === "visible" || list.length < MAX_OFFSCREEN) list.push({ element, box: placed.box });
    }
    return found;
  }

  // ---- records ----

  const clean = (text) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, MAX_NAME);
  function nameOf(element) {
    const root = element.getRootNode();
    const byIds = (ids) => ids.split(/\s+/).map((id) => root.getElementById?.(id)?.innerText ?? "").join(" ");
    return clean(element.getAttribute("aria-label")) ||
      clean(byIds(element.getAttribute("aria-labelledby") ?? "")) ||
      clean([...(element.labels ?? [])].map((label) => label.innerText).join(" ")) ||
      clean(element.getAttribute("alt")) ||
      clean(element.localName === "select" || element.localName === "textarea" ? "" : element.innerText ?? element.textContent) ||
      clean(element.getAttribute("title")) || clean(element.getAttribute("placeholder")) ||
      clean(/^(button|submit|reset)$/.test(element.type) ? element.value : "") ||
      clean(element.querySelector?.("img[alt]")?.alt) || clean(element.getAttribute("name"));
  }
  function valueOf(element) {
    if (element.localName === "select") return clean([...element.selectedOptions].map((o) => o.text).join(", "));
    if (element.localName === "option") return element.selected ? "selected" : "";
    if (element.type === "checkbox" || element.type === "radio") return element.checked ? "checked" : "";
    if (element.type === "password") return element.value ? "•".repeat(8) : "";
    if (element.localName === "input" || element.localName === "textarea") return clean(element.value);
    return clean(element.getAttribute("aria-valuenow") ?? (element.getAttribute("aria-checked") === "true" ? "checked" : ""));
  }
  function roleOf(element) {
    const explicit = element.getAttribute("role");
    if (explicit) return explicit.trim().split(/\s+/)[0];
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
    base = frame;
    found = collect();
    return {
      visible: found.visible.map(({ box }) => [box.left, box.top, box.right, box.bottom]),
      listed: found.listed.length, above: found.above.length, below: found.below.length,
      foreign: foreignFrames(),
    };
  }
  // Label the survey's finds, each kind from its first number on, and remember what was shown.
  function number(keep, first) {
    labels = new Map();
    labelOf = new WeakMap();
    if (keep !== null) found.visible = found.visible.filter((_, index) => keep[index]);
    info = {};
    for (const kind of KINDS) info[kind] = found[kind].map((item, index) => [assign(item.element, first[kind] + index), item]);
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
    const first = { visible: 1, listed: 1 + visible.length };
    first.above = first.listed + listed.length;
    first.below = first.above + above.length;
    const marks = number(null, first);
    draw(info.visible.map(([label, { box }]) => [label, box.left, box.top, box.right, box.bottom]));
    return { marks };
  }
  function screenshotInfo() {
    if (info === null) return null;
    const all = KINDS.flatMap((kind) => info[kind]).filter(([, item]) => isAlive(item.element));
    return {
      visible_rects: [...keys(info.visible), ...keys(info.listed)],
      rects_above: keys(info.above), rects_below: keys(info.below), interactive_regions: regions(all),
    };
  }
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

  // ---- drawing: one canvas in the top layer, there only while the screenshot is taken ----

  let overlay = null;
  const COLOURS = 36;
  const hue = (label) => (label * 137.508) % 360;
  const light = (label) => [38, 46, 32][Math.floor(label / COLOURS) % 3];

  // Boxes are [label, left, top, right, bottom].
  function draw(boxes) {
    erase();
    if (!(document.documentElement instanceof HTMLElement)) return;
    overlay = document.createElement("canvas");
    overlay.width = innerWidth;
    overlay.height = innerHeight;
    const style = {
      all: "initial", position: "fixed", inset: "0", margin: "0", padding: "0", border: "0", width: `${innerWidth}px`,
      height: `${innerHeight}px`, "max-width": "none", "max-height": "none", background: "transparent",
      "pointer-events": "none", "z-index": "2147483647", display: "block", overflow: "hidden",
    };
    for (const [name, value] of Object.entries(style)) overlay.style.setProperty(name, value, "important");
    overlay.setAttribute("aria-hidden", "true");
    overlay.popover = "manual";
    document.documentElement.append(overlay);
    overlay.showPopover();
    paint(overlay.getContext("2d"), boxes);
  }
  function paint(context, boxes) {
    for (const [label, left, top, right, bottom] of boxes) {
      context.fillStyle = `hsl(${hue(label)} 90% ${light(label)}% / 0.14)`;
      context.strokeStyle = `hsl(${hue(label)} 90% ${light(label)}%)`;
      context.lineWidth = 2;
      context.fillRect(left, top, right - left, bottom - top);
      context.strokeRect(left + 1, top + 1, right - left - 2, bottom - top - 2);
    }
    context.font = "bold 13px sans-serif";
    context.textBaseline = "top";
    for (const [label, , top, right, bottom] of boxes) {
      const text = String(label);
      const width = context.measureText(text).width + 6;
      const x = Math.min(Math.max(0, right - width), innerWidth - width);
      const y = top >= 17 ? top - 17 : Math.min(bottom, innerHeight - 17);
      context.fillStyle = `hsl(${hue(label)} 90% ${light(label)}%)`;
      context.fillRect(x, y, width, 17);
      context.fillStyle = "white";
      context.fillText(text, x + 3, y + 2);
    }
  }
  function erase() {
    overlay?.remove();
    overlay = null;
  }

  // ---- acting on a label ----

  function isAlive(element) {
    if (!element.isConnected) return false;
    const view = element.ownerDocument.defaultView;
    if (!view) return false;
    return view === window || (view.frameElement !== null && isAlive(view.frameElement));
  }
  const chain = (element) => {
    const view = element.ownerDocument.defaultView;
    return view === window ? base : frameOf(view.frameElement, chain(view.frameElement));
  };
  const describe = (element) => {
    if (!element) return "nothing";
    const id = element.id ? `#${element.id}` : "";
    return `<${element.localName}${id}>`;
  };
  function find(label) {
    const element = labels.get(Number(label));
    if (element === undefined) return { problem: "unknown" };
    return isAlive(element) ? { element } : { problem: "gone" };
  }
  // Where a click on the label would go; scrolls it into view when nothing of it shows.
  function locate(label) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    let box = visibleBox(element, chain(element));
    if (!box) {
      element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      box = visibleBox(element, chain(element));
    }
    if (!box) return { problem: "covered", by: coveredBy(element) };
    return { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, kind: kindOf(element) };
  }
  function coveredBy(element) {
    const box = toTop(chain(element), plain(element.getBoundingClientRect()));
    if (isEmpty(box)) return "";
    return describe(hitTest((box.left + box.right) / 2, (box.top + box.bottom) / 2));
  }
  const PICKERS = new Set(["date", "time", "datetime-local", "month", "week", "color", "range"]);
  const kindOf = (element) => (element.localName === "input" && PICKERS.has(element.type) ? "picker" : element.localName);

  const fire = (element, type, Kind = Event) => element.dispatchEvent(new Kind(type, { bubbles: true, composed: true }));
  // Pickers take no typed text that is the same in every locale, so their value is set.
  function setValue(label, value) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    element.focus();
    element.value = value;
    fire(element, "input");
    fire(element, "change");
    return { value: element.value };
  }
  function choose(label) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    if (element.localName !== "option") return visibleBox(element, chain(element)) ? { click: true } : chooseHidden(element);
    const select = element.closest("select");
    if (!select || select.disabled || element.disabled) return { problem: "disabled" };
    if (select.multiple) element.selected = !element.selected;
    else element.selected = true;
    fire(select, "input");
    fire(select, "change");
    return { chosen: clean(element.text) };
  }
  function chooseHidden(element) {
    const box = element.getBoundingClientRect();
    if (box.width >= 1 && box.height >= 1) return { click: true };
    for (const type of ["mousedown", "mouseup", "click"]) fire(element, type, MouseEvent);
    if (element.hasAttribute("aria-selected")) element.setAttribute("aria-selected", "true");
    fire(element, "change");
    return { chosen: nameOf(element) };
  }
  function scroll(label, direction) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    let target = element;
    const vertical = direction === "up" || direction === "down";
    const canScroll = (node) => (vertical ? node.scrollHeight > node.clientHeight : node.scrollWidth > node.clientWidth);
    while (target && !canScroll(target)) target = parentOf(target);
    target ??= element.ownerDocument.scrollingElement;
    const sign = direction === "up" || direction === "left" ? -1 : 1;
    const before = [target.scrollLeft, target.scrollTop];
    target.scrollBy({
      left: vertical ? 0 : sign * target.clientWidth, top: vertical ? sign * target.clientHeight : 0, behavior: "instant",
    });
    return { moved: target.scrollLeft !== before[0] || target.scrollTop !== before[1] };
  }
  // Scroll the nearest scrollable thing under a point; false when there is none or it is at its end.
  function scrollAt(x, y, direction) {
    for (let node = hitTest(x, y); node; node = parentOf(node)) {
      if (node === node.ownerDocument.scrollingElement || node === node.ownerDocument.body) return { moved: false };
      const style = getComputedStyle(node);
      if (!/auto|scroll/.test(style.overflowY) || node.scrollHeight <= node.clientHeight) continue;
      const before = node.scrollTop;
      const by = Math.floor(0.8 * node.clientHeight) * (direction === "up" ? -1 : 1);
      node.scrollBy({ top: by, behavior: "instant" });
      return { moved: node.scrollTop !== before };
    }
    return { moved: false };
  }

  // ---- reading ----

  function metaTags() {
    const tags = {};
    for (const meta of document.querySelectorAll("meta[content]")) {
      const name = meta.getAttribute("name") ?? meta.getAttribute("property");
      if (name) tags[name] = meta.getAttribute("content");
    }
    return tags;
  }
  function jsonLd() {
    const blocks = [...document.querySelectorAll("script[type='application/ld+json']")].map((s) => s.textContent);
    if (blocks.length !== 1) return blocks;
    try { return JSON.parse(blocks[0]); } catch { return blocks; }
  }
  function itemOf(scope) {
    const item = { itemType: scope.getAttribute("itemtype") };
    for (const prop of scope.querySelectorAll("[itemprop]")) {
      if (prop.parentElement.closest("[itemscope]") !== scope) continue;
      item[prop.getAttribute("itemprop")] = prop.content ?? prop.href ?? prop.src ?? clean(prop.textContent);
    }
    return item;
  }
  function pageData() {
    const data = { title: document.title, url: location.href };
    const tags = metaTags();
    const linked = jsonLd();
    const microdata = [...document.querySelectorAll("[itemscope]")].slice(0, 200).map(itemOf);
    if (Object.keys(tags).length) data.meta_tags = tags;
    if (!Array.isArray(linked) || linked.length) data.jsonld = linked;
    if (microdata.length) data.microdata = microdata;
    return data;
  }
  const text = (lines) => (document.body ?? document.documentElement)?.innerText?.split("\n").slice(0, lines)
    .filter((line) => line.trim()).join("\n") ?? "";

  globalThis.omnibox = {
    mark, survey, number, extend, draw, erase, screenshotInfo, geometry, reaches, rebase, foreignElement,
    locate, setValue, choose, scroll, scrollAt, pageData, text, hitTest, find,
  };
})();
