// Draws the marks in one element of the top layer, above modal dialogs, there only while the screenshot
// is taken. They are boxes, for a canvas of the screen's size makes the capture dearer. Beside
// `_page_script.js`, in the same world.
(() => {
  if (omnibox.draw) return;

  const XHTML = "http://www.w3.org/1999/xhtml";
  const SVG = "http://www.w3.org/2000/svg";
  const LIFE_MS = 10000;  // the overlay of a capture that never ended goes by itself
  const LINE = 2;         // width of the line around a box
  const HEIGHT = 16;      // of a label
  const DIGIT = 8;        // wide enough for the bold digits of any font
  const CELL = 4;         // pixels of the map of what is taken
  const EDGE = 3;         // labels and boxes may touch
  const LABEL_COST = 20;
  // Important, so that no rule of the page gets at it.
  const HOST = `all: initial; position: fixed; inset: 0; width: 100vw; height: 100vh; max-width: none; max-height: none;
    margin: 0; padding: 0; border: 0; background: transparent; pointer-events: none; z-index: 2147483647; display: block;
    overflow: hidden; contain: strict;`.replaceAll(";", " !important;");
  const SHEET = `:host { ${HOST} }
    div { position: absolute; box-sizing: border-box; border: ${LINE}px solid; }
    .label { border: 0; color: white; outline: 1px solid white; text-align: center; white-space: nowrap;
      font: bold 13px/${HEIGHT}px Arial, "Liberation Sans", "DejaVu Sans", sans-serif; }`;

  let overlay = null;
  let sheet = null;
  let timer = 0;

  // Boxes are [label, left, top, right, bottom].
  function draw(boxes) {
    erase();
    if (boxes.length === 0) return;
    if (sheet === null) {
      sheet = new CSSStyleSheet();
      sheet.replaceSync(SHEET);
    }
    const layer = document.createElementNS(XHTML, "div");
    const shadow = layer.attachShadow({ mode: "closed" });
    shadow.adoptedStyleSheets = [sheet];
    const around = boxes.map(surrounding);
    shadow.append(...around.map(outline), ...tags(around));
    show(layer);
    timer = setTimeout(erase, LIFE_MS);
  }
  function show(layer) {
    const root = document.documentElement;
    const isPicture = root.namespaceURI === SVG;
    overlay = isPicture ? inPicture(root, layer) : layer;
    if (!isPicture) layer.popover = "manual";
    root.append(overlay);
    if (!isPicture) layer.showPopover();
  }
  // A picture of its own has no boxes: the layer lies in its coordinates, turned back to pixels.
  function inPicture(root, layer) {
    const holder = document.createElementNS(SVG, "foreignObject");
    const { a, b, c, d, e, f } = root.getScreenCTM().inverse();
    holder.setAttribute("transform", `matrix(${[a, b, c, d, e, f].join(" ")})`);
    holder.setAttribute("width", innerWidth);
    holder.setAttribute("height", innerHeight);
    holder.style.setProperty("pointer-events", "none");
    holder.append(layer);
    return holder;
  }
  function erase() {
    clearTimeout(timer);
    overlay?.remove();
    overlay = null;
  }

  // Neighbours in number are far apart in hue; all are dark enough for white text.
  const colour = (label) => {
    const hue = (label * 137.508) % 360;
    const light = hue > 45 && hue < 200 ? 28 : 42;
    return `${hue} 95% ${light + (label % 3) * 3}%`;
  };
  // The line runs around the element, not over the first and last letter of its text.
  const surrounding = ([label, left, top, right, bottom]) => [
    label, Math.max(0, left - LINE), Math.max(0, top - LINE), Math.min(innerWidth, right + LINE), Math.min(innerHeight, bottom + LINE),
  ];
  function rectangle(left, top, width, height, colours) {
    const made = document.createElementNS(XHTML, "div");
    made.style.cssText = `left:${left}px;top:${top}px;width:${width}px;height:${height}px;${colours}`;
    return made;
  }
  function outline([label, left, top, right, bottom]) {
    const hsl = colour(label);
    return rectangle(left, top, right - left, bottom - top, `border-color:hsl(${hsl});background:hsl(${hsl}/.1)`);
  }
  function tags(boxes) {
    const taken = new Taken(boxes);
    return boxes.map(([label, left, top, right, bottom]) => {
      const text = String(label);
      const width = DIGIT * text.length + 4;
      const [x, y] = taken.place({ left, top, right, bottom }, width);
      const made = rectangle(x, y, width, HEIGHT, `background:hsl(${colour(label)})`);
      made.className = "label";
      made.textContent = text;
      return made;
    });
  }

  // Which parts of the screen are marked already: labels do not hide each other, nor, where there is
  // room beside, what they denote.
  class Taken {
    constructor(boxes) {
      this.columns = Math.ceil(innerWidth / CELL);
      this.rows = Math.ceil(innerHeight / CELL);
      this.cells = new Uint8Array(this.columns * this.rows);
      for (const [, left, top, right, bottom] of boxes) this.fill(left, top, right, bottom, 1);
    }
    fill(left, top, right, bottom, cost) {
      const last = Math.min(this.rows, Math.ceil(bottom / CELL));
      const begin = Math.max(0, Math.floor(left / CELL));
      const end = Math.min(this.columns, Math.ceil(right / CELL));
      for (let row = Math.max(0, Math.floor(top / CELL)); row < last; row++) {
        this.cells.fill(cost, row * this.columns + begin, row * this.columns + end);
      }
    }
    cost(left, top, right, bottom) {
      let cost = 0;
      for (let y = top; y < bottom; y += CELL) {
        const row = Math.floor(y / CELL) * this.columns;
        for (let x = left; x < right; x += CELL) cost += this.cells[row + Math.floor(x / CELL)];
      }
      return cost;
    }
    // Above the corner at the right first, as readers of marked screenshots expect it.
    place({ left, top, right, bottom }, width) {
      const places = [
        [right - width, top - HEIGHT], [left, top - HEIGHT], [right - width, bottom], [left, bottom],
        [right, top], [left - width, top], [right - width, top], [left, top], [right - width, bottom - HEIGHT],
      ];
      let best = null;
      let least = Infinity;
      for (const [x, y] of places) {
        const inX = Math.min(Math.max(1, Math.round(x)), innerWidth - width - 1);
        const inY = Math.min(Math.max(1, Math.round(y)), innerHeight - HEIGHT - 1);
        const cost = this.cost(inX + EDGE, inY + EDGE, inX + width - EDGE, inY + HEIGHT - EDGE);
        if (cost < least) { best = [inX, inY]; least = cost; }
        if (cost === 0) break;
      }
      this.fill(best[0], best[1], best[0] + width, best[1] + HEIGHT, LABEL_COST);
      return best;
    }
  }

  Object.assign(omnibox, { draw, erase });
})();
