// Acts on what a label denotes, and reads the page. Beside `_page_script.js`, in the same world.
(() => {
  const { find, isLabelled, again, frameAround, outerBox, visibleBox, hitTest, isInside, parentOf, isEmpty, clean, nameOf } = omnibox;
  if (omnibox.locate) return;

  const FRAME_LIMIT_MS = 100;  // a page in the background draws no frames
  const FIELDS = "input,textarea,select,[contenteditable]:not([contenteditable='false' i])";
  const BUTTONS = new Set(["hidden", "checkbox", "radio", "button", "submit", "reset", "image", "file"]);
  // Fields with a value that HTML writes in one way; Enter in them sends the form.
  const EXAMPLES = {
    date: "2025-01-31", time: "13:45", "datetime-local": "2025-01-31T13:45", month: "2025-01", week: "2025-W05",
  };
  const PICKERS = new Set([...Object.keys(EXAMPLES), "color", "range"]);

  // ---- where to click ----

  const describe = (element) => {
    if (!element) return "nothing";
    const id = element.id ? `#${element.id}` : "";
    return `<${element.localName}${id}>`;
  };
  // What text goes into: the element itself, or the field that it wraps or stands for.
  const isField = (element) => element.matches(FIELDS) && !(element.localName === "input" && BUTTONS.has(element.type));
  function fieldOf(element) {
    if (isField(element) || element.isContentEditable) return element;
    return element.control ?? [...(element.shadowRoot ?? element).querySelectorAll(FIELDS)].find(isField) ?? element;
  }
  // An option of a closed drop-down has no box; its list stands for it.
  const shownFor = (element) => (element.localName === "option" && element.getClientRects().length === 0
    ? element.closest("select") ?? element : element);
  const isPicker = (element) => element.localName === "select" || (element.localName === "input" && PICKERS.has(element.type));
  const kindOf = (element) => (isPicker(element) ? "picker" : element.localName);

  // Whether what is hit belongs to the element itself, not to another labelled one within it.
  function isOwn(element, x, y) {
    const hit = hitTest(x, y);
    if (hit === null || !isInside(hit, element)) return false;
    for (let node = hit; node && node !== element; node = parentOf(node)) if (isLabelled(node)) return false;
    return true;
  }
  function pointOn(element) {
    const frame = frameAround(element);
    const box = visibleBox(element, frame, outerBox(element, frame));
    if (box === null) return null;
    const middle = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
    if (isOwn(element, middle.x, middle.y)) return middle;
    for (let row = 1; row < 12; row += 2) {
      for (let column = 1; column < 12; column += 2) {
        const x = box.left + (box.right - box.left) * column / 12;
        const y = box.top + (box.bottom - box.top) * row / 12;
        if (isOwn(element, x, y)) return { x, y };
      }
    }
    return middle;
  }
  // Where a click on the label would go as the page is now.
  function locate(label, forText) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    again();
    const shown = shownFor(element);
    let target = forText ? fieldOf(shown) : shown;
    let point = pointOn(target);
    if (point === null && target !== shown) {
      // A field that cannot be seen gets the focus by what stands for it.
      target = shown;
      point = pointOn(target);
    }
    if (point === null) return { problem: "covered", by: coveredBy(target) };
    return { ...point, kind: shown === element ? kindOf(target) : "listed" };
  }
  function coveredBy(element) {
    const box = outerBox(element, frameAround(element));
    return isEmpty(box) ? "" : describe(hitTest((box.left + box.right) / 2, (box.top + box.bottom) / 2));
  }
  // Bring the element into view; the page has had a frame to react to the scrolling.
  async function reveal(label) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    shownFor(element).scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    await new Promise((resolve) => {
      requestAnimationFrame(() => setTimeout(resolve, 0));
      setTimeout(resolve, FRAME_LIMIT_MS);
    });
    return {};
  }

  // ---- values ----

  const fire = (element, type, Kind = Event) => element.dispatchEvent(new Kind(type, { bubbles: true, composed: true }));
  // Pickers take no typed text that is the same in every locale, and a drop-down shows nothing to type
  // in, so their value is set.
  function setValue(label, value) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    const field = fieldOf(element);
    if (field.matches(":disabled") || field.readOnly) return { problem: "disabled" };
    field.focus();
    if (field.localName === "select") {
      const option = optionOf(field, clean(value).toLowerCase());
      return option ? chooseOption(option) : { problem: "option", options: [...field.options].map((o) => clean(o.text)).slice(0, 20) };
    }
    const before = field.value;
    field.value = value;
    if (value !== "" && field.value === "") {
      field.value = before;
      return { problem: "value", type: field.type, example: EXAMPLES[field.type] ?? "" };
    }
    fire(field, "input");
    fire(field, "change");
    return { value: field.value, submits: field.type in EXAMPLES };
  }
  // By its text, its value, or the beginning of its text.
  function optionOf(select, wanted) {
    const options = [...select.options].filter((option) => !option.matches(":disabled"));
    const text = (option) => clean(option.text).toLowerCase();
    return options.find((option) => text(option) === wanted) ?? options.find((option) => option.value.toLowerCase() === wanted) ??
      options.find((option) => wanted !== "" && text(option).startsWith(wanted));
  }
  function choose(label) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    const select = element.localName === "option" ? element.closest("select") : null;
    if (select && (select.multiple || element.getClientRects().length === 0)) return chooseOption(element);
    const box = element.getBoundingClientRect();
    if (box.width >= 1 && box.height >= 1) return { click: true };
    for (const type of ["mousedown", "mouseup", "click"]) fire(element, type, MouseEvent);
    if (element.hasAttribute("aria-selected")) element.setAttribute("aria-selected", "true");
    fire(element, "change");
    return { chosen: nameOf(element) };
  }
  function chooseOption(option) {
    const select = option.closest("select");
    if (!select || option.matches(":disabled") || select.matches(":disabled")) return { problem: "disabled" };
    const before = option.selected;
    option.selected = select.multiple ? !before : true;
    if (option.selected !== before) {
      fire(select, "input");
      fire(select, "change");
    }
    return { chosen: clean(option.text) };
  }

  // ---- scrolling ----

  const isRoot = (node) => node === node.ownerDocument.scrollingElement;
  function scrolls(node, vertical) {
    const overflows = vertical ? node.scrollHeight > node.clientHeight : node.scrollWidth > node.clientWidth;
    if (!overflows) return false;
    const style = getComputedStyle(node);
    const overflow = vertical ? style.overflowY : style.overflowX;
    return isRoot(node) ? !/hidden|clip/.test(overflow) : /auto|scroll/.test(overflow);
  }
  // The nearest thing around an element that scrolls; out of a frame, what is around the frame.
  function scrollerOf(element, vertical) {
    for (let node = element; node;) {
      if (scrolls(node, vertical)) return node;
      const view = node.ownerDocument.defaultView;
      node = parentOf(node) ?? (view === window ? null : view.frameElement);
    }
    return null;
  }
  const SIGNS = { up: -1, left: -1, down: 1, right: 1 };
  function scrollBy(scroller, direction, part) {
    const vertical = direction === "up" || direction === "down";
    const { scrollLeft, scrollTop } = scroller;
    const by = SIGNS[direction] * Math.floor(part * (vertical ? scroller.clientHeight : scroller.clientWidth));
    scroller.scrollBy({ left: vertical ? 0 : by, top: vertical ? by : 0, behavior: "instant" });
    return { moved: scroller.scrollLeft !== scrollLeft || scroller.scrollTop !== scrollTop };
  }
  function scroll(label, direction) {
    const { element, problem } = find(label);
    if (problem) return { problem };
    const scroller = scrollerOf(element, direction === "up" || direction === "down");
    return scroller === null ? { moved: false } : scrollBy(scroller, direction, 1);
  }
  // Scroll the box under a point; false when there is none but the page itself, or it is at its end.
  function scrollAt(x, y, direction) {
    again();
    const hit = hitTest(x, y);
    const scroller = hit === null ? null : scrollerOf(hit, true);
    return scroller === null || isRoot(scroller) ? { moved: false } : scrollBy(scroller, direction, 0.8);
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

  Object.assign(omnibox, { locate, reveal, setValue, choose, scroll, scrollAt, pageData, text });
})();
