// Knows what an action started in this page. Runs in the page's own world, in every document, before
// any of its scripts, and answers `settle()`: a promise that resolves when that work is done.
//
// Every timer, animation frame and request has a cause: the action that started it, directly or
// through a chain of callbacks. An action's window opens with its first trusted input event (or with
// the document itself) and closes when settling ends. What has another cause, such as a poll that
// was running before, is never waited for.
//
// Frames that can look into their parent share its books. A frame of another origin keeps its own
// and tells the top document by message, which no page ever sees, when its window opens and when
// its work is done.
(() => {
  const KEY = Symbol.for("omnibox.settle");
  if (window[KEY]) { window[KEY].attend(); return; }

  const TIMER_LIMIT_MS = 500;   // longer timers are the page's business, not the action's
  const TIMER_GRACE_MS = 250;   // a timer this late died with its frame
  const REPLY_LIMIT_MS = 500;   // a socket or worker that answers later was not asked
  const IMAGE_LIMIT_MS = 1000;  // then an image is the page's business too, and a frame's load
  const SCRIPT_LIMIT_MS = 2000;
  const HISTORY_LIMIT_MS = 300; // how long the browser takes to begin a traversal
  const FRAME_LIMIT_MS = 500;   // a page that draws no frame in this time draws none at all
  const RECHECK_MS = 50;        // animations are looked at, not listened to
  const ROUNDS = 20;            // of microtasks that continue what a callback began
  const MESSAGE = "omnibox.settle";

  // What is used later is taken now: pages replace these.
  const { Map, Promise, Proxy, Reflect, Set, WeakMap, WeakRef, WeakSet, performance, queueMicrotask } = window;
  const { setTimeout, requestAnimationFrame } = window;
  const postTask = window.scheduler.postTask.bind(window.scheduler);
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  const { then } = Promise.prototype;
  const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
  const titleOf = getter(Document.prototype, "title");
  const imagesOf = getter(Document.prototype, "images");
  const eventNow = getter(window, "event");
  const now = () => performance.timeOrigin + performance.now();

  const parentState = () => {
    try { return window.parent === window ? null : window.parent[KEY]?.state ?? null; } catch { return null; }
  };
  const above = parentState();
  const isTop = window.top === window;
  const isForeign = above === null && !isTop;
  const state = above ?? {
    cause: 1, nextCause: 2, byInput: false, openedAt: now(), current: null,
    turn: 0, pending: new Set(), wake: null, observes: false, moved: false, heedsScroll: false, frameKinds: new Set(),
    ignoredImages: new WeakSet(), views: new Set(), roots: new Set(), observers: new Set(),
  };

  // ---- causes ----

  const causes = new WeakMap();  // of requests, sockets and workers: whose events these are
  const causeNow = () => {
    if (state.current !== null) return state.current;
    const source = eventNow.call(window)?.target;
    return (source && causes.get(source)) ?? state.cause;
  };
  const notify = () => { const wake = state.wake; state.wake = null; if (wake) wake(); };
  const begin = (kind, cause, expires = Infinity) => {
    if (cause === 0 || cause !== state.cause) return null;
    const entry = { kind, expires, view: window };
    state.pending.add(entry);
    return entry;
  };
  const end = (entry) => { if (entry && state.pending.delete(entry)) notify(); };
  // A callback of another cause runs as that one, and so do the microtasks that continue it.
  const resume = (cause) => {
    if (state.cause === 0 || cause === state.cause) return;
    state.current = cause;
    let left = ROUNDS;
    const reset = () => { if (left-- > 0) queueMicrotask(reset); else if (state.current === cause) state.current = null; };
    queueMicrotask(reset);
  };
  const track = (promise, kind, cause) => {
    const entry = begin(kind, cause);
    return then.call(promise,
      (value) => { resume(cause); end(entry); return value; },
      (error) => { resume(cause); end(entry); throw error; });
  };

  // ---- windows of an action ----

  const observer = new MutationObserver((records) => {
    for (const { addedNodes } of records) for (const node of addedNodes) if (node.nodeType === 1) loads(node);
  });
  const observe = () => {
    observer.observe(document, { childList: true, subtree: true });
    state.observers.add(observer);
  };
  const tell = (message, to = window.top) => to.postMessage({ [MESSAGE]: message }, "*");
  const open = () => {
    attend();
    state.current = null;
    if (state.cause !== 0 && state.byInput) { observe(); return; }
    begun(true);
    if (isForeign) { tell({ open: "input" }); watch(); }
  };
  const begun = (byInput) => {
    state.pending.clear();
    Object.assign(state, { cause: state.nextCause++, byInput, openedAt: now() });
    observe();
  };
  const close = () => {
    state.cause = 0;
    state.current = null;
    state.moved = false;
    state.pending.clear();
    for (const one of state.observers) one.disconnect();
    state.observers.clear();
    for (const frame of foreign.keys()) tell({ close: true }, frame);
    foreign.clear();
    notify();
  };

  // ---- what is waited for ----

  const replace = (owner, name, apply) => {
    if (typeof owner[name] === "function") owner[name] = new Proxy(owner[name], { apply });
  };
  const timers = new Map();
  const repeat = (repeats) => (target, self, [handler, delay, ...args]) => {
    if (typeof handler !== "function") return Reflect.apply(target, self, [handler, delay, ...args]);
    const cause = causeNow();
    const ms = Math.max(0, Number(delay) || 0);
    const endless = repeats && state.byInput;  // ends when it is cleared; one of the load ticks once
    const entry = ms <= TIMER_LIMIT_MS ? begin("timer", cause, endless ? Infinity : now() + ms + TIMER_GRACE_MS) : null;
    const run = function (...given) {
      resume(cause);
      if (!repeats) timers.delete(id);
      try { return Reflect.apply(handler, this, given); } finally { if (!endless) end(entry); }
    };
    const id = Reflect.apply(target, self, [run, delay, ...args]);
    if (entry) timers.set(id, entry);
    return id;
  };
  replace(window, "setTimeout", repeat(false));
  replace(window, "setInterval", repeat(true));
  const once = (entries) => (target, self, [callback, ...args]) => {
    if (typeof callback !== "function") return Reflect.apply(target, self, [callback, ...args]);
    const cause = causeNow();
    const entry = begin("frame", cause, now() + TIMER_LIMIT_MS + TIMER_GRACE_MS);
    const id = Reflect.apply(target, self, [function (...given) {
      resume(cause);
      entries.delete(id);
      try { return Reflect.apply(callback, this, given); } finally { end(entry); }
    }, ...args]);
    if (entry) entries.set(id, entry);
    return id;
  };
  const clear = (entries) => (target, self, args) => {
    end(entries.get(args[0]));
    entries.delete(args[0]);
    return Reflect.apply(target, self, args);
  };
  const frames = new Map();
  const idles = new Map();
  replace(window, "clearTimeout", clear(timers));
  replace(window, "clearInterval", clear(timers));
  replace(window, "requestAnimationFrame", once(frames));
  replace(window, "cancelAnimationFrame", clear(frames));
  replace(window, "requestIdleCallback", once(idles));
  replace(window, "cancelIdleCallback", clear(idles));

  const request = (target, self, args) => {
    const cause = causeNow();
    return track(Reflect.apply(target, self, args), "fetch", cause);
  };
  replace(window, "fetch", request);
  for (const name of ["json", "text", "blob", "arrayBuffer", "bytes", "formData"]) replace(Response.prototype, name, request);
  replace(ReadableStreamDefaultReader.prototype, "read", request);
  for (const name of ["XMLHttpRequest", "WebSocket", "Worker", "EventSource"]) {
    if (typeof window[name] === "function") window[name] = new Proxy(window[name], {
      construct(target, args, self) {
        const made = Reflect.construct(target, args, self);
        causes.set(made, causeNow());
        return made;
      },
    });
  }
  const asks = (kind, answer, limitMs) => (target, self, args) => {
    const cause = causeNow();
    const entry = begin(kind, cause, now() + limitMs);
    if (entry) addEventListener.call(self, answer, () => end(entry), { once: true });
    causes.set(self, cause);
    try { return Reflect.apply(target, self, args); } catch (error) { end(entry); throw error; }
  };
  replace(XMLHttpRequest.prototype, "send", asks("fetch", "loadend", Infinity));
  replace(WebSocket.prototype, "send", asks("socket", "message", REPLY_LIMIT_MS));
  replace(Worker.prototype, "postMessage", asks("worker", "message", REPLY_LIMIT_MS));

  const seen = new WeakSet();
  const loads = (node) => {
    if (node.localName === "script" || node.localName === "link") loadsFile(node);
    else if (node.firstElementChild) node.querySelectorAll("script[src],link[rel~=stylesheet]").forEach(loadsFile);
  };
  const loadsFile = (node) => {
    const runs = node.src && (!node.type || /^(module|(text|application)\/(java|ecma)script)$/i.test(node.type));
    const styles = node.relList?.contains("stylesheet") && node.href && !node.sheet && !node.disabled;
    if (!(runs || styles) || seen.has(node)) return;
    seen.add(node);
    const limitMs = state.byInput ? SCRIPT_LIMIT_MS : IMAGE_LIMIT_MS;
    const entry = begin("script", state.cause, now() + limitMs);
    for (const type of ["load", "error"]) if (entry) addEventListener.call(node, type, () => end(entry), { once: true });
  };

  const went = (target, self, args) => {
    begin("navigation", causeNow(), now() + HISTORY_LIMIT_MS);
    return Reflect.apply(target, self, args);
  };
  for (const name of ["back", "forward", "go"]) replace(History.prototype, name, went);
  // Scroll handlers and observers run with the next frame.
  const moves = (target, self, args) => {
    if (causeNow() === state.cause) state.moved = true;
    return Reflect.apply(target, self, args);
  };
  for (const name of ["scroll", "scrollTo", "scrollBy"]) { replace(window, name, moves); replace(Element.prototype, name, moves); }
  replace(Element.prototype, "scrollIntoView", moves);
  // Scrolling starts something only on a page that listens to it; others need no extra frame.
  replace(EventTarget.prototype, "addEventListener", (target, self, args) => {
    if (args[0] === "scroll" || args[0] === "scrollend") state.heedsScroll = true;
    return Reflect.apply(target, self, args);
  });
  const heedsScroll = () => state.heedsScroll || Boolean(window.onscroll || document.onscroll || document.body?.onscroll) ||
    document.querySelector("[loading=lazy],[onscroll]") !== null;
  window.IntersectionObserver = new Proxy(window.IntersectionObserver, {
    construct(target, args, self) { state.observes = true; return Reflect.construct(target, args, self); },
  });
  replace(Element.prototype, "attachShadow", (target, self, args) => {
    const root = Reflect.apply(target, self, args);
    state.roots.add(new WeakRef(root));
    return root;
  });
  // The viewport is the tier's business: screenshots show the window, whatever the page made of it.
  for (const name of ["resizeTo", "resizeBy", "moveTo", "moveBy"]) replace(window, name, () => undefined);
  // Both may begin a new document in this window, which takes our listeners away.
  const rewrites = (target, self, args) => {
    try { return Reflect.apply(target, self, args); } finally { listen(); }
  };
  for (const name of ["open", "write", "writeln"]) replace(Document.prototype, name, rewrites);

  // ---- events ----

  let isParsed = false;
  let parsedWake = null;
  const pointer = { x: -1, y: -1 };
  const onInput = (event) => {
    if (event.isTrusted) open();
  };
  const onMove = (event) => {
    // Chromium repeats the last move in a new document and when a page changes under a mouse that rests.
    if (!event.isTrusted || (event.clientX === pointer.x && event.clientY === pointer.y)) return;
    Object.assign(pointer, { x: event.clientX, y: event.clientY });
    if (state.cause === 0 || state.byInput) open();
  };
  const onClick = (event) => {
    onInput(event);
    if (event.isTrusted && event.composedPath().some((node) => node.localName === "a" && node.hash)) state.moved = true;
  };
  const onHistory = (event) => {
    onInput(event);
    for (const entry of state.pending) if (entry.kind === "navigation") end(entry);
  };
  const onParsed = () => { isParsed = true; parsedWake?.(); };
  const onHide = () => {
    for (const entry of state.pending) if (entry.view === window) end(entry);
    state.views.delete(window);
    state.observers.delete(observer);
    if (isForeign) tell({ idle: [] });
  };
  const LISTENERS = {
    pointermove: onMove, mousemove: onMove, click: onClick, popstate: onHistory, hashchange: onHistory,
    pagehide: onHide, load: onParsed, DOMContentLoaded: onParsed,
  };
  if (isTop || isForeign) LISTENERS.message = (event) => onMessage(event);
  for (const type of ["pointerdown", "pointerup", "mousedown", "mouseup", "dblclick", "contextmenu", "keydown", "keyup",
    "wheel", "dragstart", "dragover", "drop"]) LISTENERS[type] = onInput;

  // Frames of another origin: the top document is told, and says when it is no longer interested.
  const foreign = new Map();
  const onMessage = (event) => {
    const said = event.data?.[MESSAGE];
    if (said === undefined || said === null) return;
    event.stopImmediatePropagation();
    if (said.close && isForeign && event.source === window.top) close();
    if (isTop && event.source && event.source !== window) heard(said, event.source);
  };
  const heard = (said, frame) => {
    end(foreign.get(frame));
    foreign.delete(frame);
    if (said.idle) { for (const kind of said.idle) state.frameKinds.add(String(kind)); return; }
    if (said.open === "input") open();
    const entry = begin("subframe", state.cause, said.open === "input" ? Infinity : now() + IMAGE_LIMIT_MS);
    if (entry) foreign.set(frame, entry); else tell({ close: true }, frame);
  };
  let isWatching = false;
  async function watch() {
    if (isWatching) return;
    isWatching = true;
    const kinds = new Set();
    await parsed(IMAGE_LIMIT_MS);
    await quiet(60000, kinds);
    isWatching = false;
    close();
    tell({ idle: [...kinds] });
  }
  const listen = () => {
    for (const [type, listener] of Object.entries(LISTENERS)) {
      // In a window that is used again a listener may still be there, and yet hear nothing.
      removeEventListener.call(window, type, listener, true);
      addEventListener.call(window, type, listener, { capture: true, passive: true });
    }
  };

  // ---- settling ----

  const documents = () => {
    const found = [];
    for (const view of state.views) {
      try { if (!view.closed && view.document) found.push(view.document); } catch { /* became cross-origin */ }
    }
    return found;
  };
  // A finite animation that began with the action ends by itself; an endless one never does, and
  // one that outlasts the cap is not worth waiting for.
  const runs = (animation, timeline, capLeftMs) => {
    if (animation.playState !== "running" || animation.timeline !== timeline) return false;
    const timing = animation.effect?.getComputedTiming();
    if (!timing || !Number.isFinite(timing.endTime)) return false;
    const began = animation.startTime ?? Infinity;
    if (performance.timeOrigin + began < state.openedAt - RECHECK_MS) return false;
    const left = (timing.endTime - (animation.currentTime ?? 0)) / Math.abs(animation.playbackRate || 1);
    return left > 0 && left <= capLeftMs;
  };
  const animates = (root, doc, capLeftMs) => root.getAnimations().some((one) => runs(one, doc.timeline, capLeftMs));
  const shadowAnimates = (capLeftMs) => {
    for (const reference of state.roots) {
      const root = reference.deref();
      if (root === undefined) state.roots.delete(reference);
      else if (root.isConnected && animates(root, root.ownerDocument, capLeftMs)) return true;
    }
    return false;
  };
  const loadsImage = (doc) => {
    const late = now() - state.openedAt > IMAGE_LIMIT_MS;
    for (const image of imagesOf.call(doc)) {
      if (image.complete || !image.src || state.ignoredImages.has(image)) continue;
      if (late) { state.ignoredImages.add(image); continue; }
      const box = image.getBoundingClientRect();
      const view = doc.defaultView;
      if (box.bottom <= 0 || box.right <= 0 || box.top >= view.innerHeight || box.left >= view.innerWidth) continue;
      if (!seen.has(image)) {
        seen.add(image);
        for (const type of ["load", "error"]) addEventListener.call(image, type, notify, { once: true });
      }
      return true;
    }
    return false;
  };
  const pendingKinds = (capLeftMs) => {
    const kinds = new Set();
    if (state.cause === 0) return kinds;
    for (const entry of state.pending) {
      if (now() > entry.expires || entry.view.closed) state.pending.delete(entry);
      else kinds.add(entry.kind);
    }
    for (const doc of documents()) {
      if (animates(doc, doc, capLeftMs)) kinds.add("animation");
      if (loadsImage(doc)) kinds.add("image");
    }
    if (shadowAnimates(capLeftMs)) kinds.add("animation");
    return kinds;
  };

  const after = (ms, resolve) => setTimeout.call(window, resolve, Math.max(0, ms));
  // Background tasks run when every queued task of the page has run; false when that never happens.
  const drained = (limitMs) => new Promise((resolve) => {
    postTask(() => resolve(true), { priority: "background" });
    after(limitMs, () => resolve(false));
  });
  const rendered = () => new Promise((resolve) => {
    requestAnimationFrame.call(window, () => after(0, resolve));
    after(FRAME_LIMIT_MS, resolve);
  });
  const parsed = (limitMs) => new Promise((resolve) => {
    if (isParsed) { resolve(); return; }
    parsedWake = resolve;
    after(limitMs, resolve);
  });
  const change = (limitMs) => new Promise((resolve) => {
    state.wake = resolve;
    after(Math.min(limitMs, RECHECK_MS), resolve);
  });

  // True when nothing is pending any more, false at the cap.
  async function quiet(capMs, waitedFor) {
    const started = now();
    const left = () => capMs - (now() - started);
    for (let animated = false; ;) {
      const isDrained = await drained(Math.max(left(), RECHECK_MS));
      const kinds = pendingKinds(Math.max(0, left()));
      if (!isDrained) kinds.add("task");
      for (const kind of kinds) waitedFor.add(kind);
      if (kinds.size > 0 && left() <= 0) return false;
      if (kinds.size === 0 && !animated) return true;
      // The events that say an animation has ended come with the frame after its end.
      if (kinds.size === 0) await rendered(); else await change(left());
      animated = kinds.has("animation");
    }
  }

  async function settle(capMs, parseMs, scrolled) {
    attendAll(window);
    const waitedFor = new Set();
    const asked = now();
    const turn = ++state.turn;
    state.frameKinds.clear();
    if (!isParsed) {
      waitedFor.add("parse");
      await parsed(parseMs);
      if (!state.byInput) state.openedAt = now();
    }
    if ((scrolled && heedsScroll()) || state.observes || state.moved) await rendered();
    const isQuiet = await quiet(isParsed ? capMs : 0, waitedFor);
    // One whose caller has gone away must not end the next one's window.
    if (turn === state.turn) close();
    return {
      reason: isQuiet && isParsed ? "idle" : "cap", ms: now() - asked, waited_for: [...waitedFor, ...state.frameKinds],
      title: titleOf.call(document).toWellFormed(), url: location.href, width: Number(innerWidth) || 0, height: Number(innerHeight) || 0,
    };
  }

  // ---- the document ----

  // Chromium uses the window of an initial empty document again, without listeners and unannounced.
  let attended = null;
  const attend = () => {
    if (attended === document) return;
    attended = document;
    state.views.add(window);
    listen();
    isParsed = document.readyState === "complete" || performance.timing.domContentLoadedEventStart > 0;
    if (state.cause !== 0) observe();
    if (isForeign) { tell({ open: "load" }); watch(); }
  };
  const attendAll = (view) => {
    try { view[KEY]?.attend(); } catch { return; /* another origin keeps its own books */ }
    for (let n = 0; n < view.length; n++) attendAll(view[n]);
  };
  attend();
  Object.defineProperty(window, KEY, { value: Object.freeze({ state, open, settle, attend }) });
})();
