// Finds the interactive elements of a document and of the frames it can look into, describes them and
// keeps their labels. Beside `_sight_script.js`, in the same world.
//
// Marking is on the path of every step: what is asked of an element is asked in the order of its
// cost, and nothing is asked of an element whose box already says that it cannot be seen.
(() => {
  if (omnibox.mark) return;
  const {
    intersect, isEmpty, area, middleX, middleY, isFrame, documentOf, parentOf, isAlive,
    begin, again, frameOf, frameAround, hitTest, outerBox, around, visibleBox, topFrame,
  } = omnibox;

  const MAX_ELEMENTS = 30000;  // beyond, only what the selector finds is looked at
  const MAX_VISITED = 50000;   // of that
  const MAX_OFFSCREEN = 500;   // labels above the screen, and below it
  const MAX_OPTIONS = 500;     // labels in one drop-down
  const MAX_NAME = 200;
  const HUGE = 0.9;            // of the screen: a page's own background, not a thing to point at
  const SELECTOR = "a[*|href],area[href],button,input,select,textarea,summary,[onclick],[role]," +
    "[contenteditable]:not([contenteditable='false' i]),[tabindex]:not([tabindex^='-'])," +
    "video[controls],audio[controls],iframe,frame,object";
  const WITHOUT_ROLE = SELECTOR.replace("[role],", "");
  const ROLES = new Set(("scrollbar searchbox slider spinbutton switch tab treeitem button checkbox gridcell " +
    "link menuitem menuitemcheckbox menuitemradio option progressbar radio textbox combobox menu tree " +
    "treegrid grid listbox radiogroup widget").split(" "));
  const PASSIVE_CURSORS = new Set("auto default none text vertical-text not-allowed no-drop wait progress".split(" "));
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
    return parent === null ? element.ownerDocument !== document || topFrame().matrix !== null : cursorOf(parent) !== cursor;
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
    walk(document, topFrame(), { left: MAX_ELEMENTS, visits: MAX_VISITED }, found);
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
  let labelsIn = new Map();
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
    labelsIn = new Map();
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

  function find(label) {
    const element = labels.get(Number(label));
    if (element === undefined) return { problem: "unknown" };
    return isAlive(element) ? { element } : { problem: "gone" };
  }
  const isLabelled = (element) => labelOf.has(element);

  Object.assign(omnibox, {
    survey, number, mark, extend, offscreen, geometry, reaches, foreignElement, rebase, find, isLabelled, clean, nameOf,
  });
})();
