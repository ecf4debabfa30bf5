// Knows what an action started in this page. Runs in the page's own world, in every document, before
// any of its scripts, and answers `settle()`: a promise that resolves when that work is done.
//
// Every timer, animation frame and request has a cause: the action that started it, directly or
// through a chain of callbacks. An action's window opens with its first trusted input event (or with
// the document itself) and closes when settling ends. What has another cause, such as a poll that
// was running before, is never waited for.
(() => {
  const KEY = Symbol.for("omnibox.settle");
  if (window[KEY]) return;

  const TIMER_LIMIT_MS = 500;   // longer timers are the page's business, not the action's
  const TIMER_GRACE_MS = 250;   // a timer this late died with its frame
  const IMAGE_LIMIT_MS = 1000;  // then an image is the page's business too
  const RECHECK_MS = 50;        // animations and images are looked at, not listened to

  const native = {
    setTimeout: window.setTimeout, clearTimeout: window.clearTimeout,
    setInterval: window.setInterval, clearInterval: window.clearInterval,
    requestAnimationFrame: window.requestAnimationFrame,
    cancelAnimationFrame: window.cancelAnimationFrame,
    fetch: window.fetch, send: XMLHttpRequest.prototype.send,
  };
  const now = () => performance.timeOrigin + performance.now();

  // Frames of one origin share their top's state: a handler in one may start work in another.
  let shared = null;
  try { shared = window.top !== window ? window.top[KEY]?.state ?? null : null; } catch { /* cross-origin */ }
  const state = shared ?? {
    cause: 1, nextCause: 2, openedAt: now(), current: null,
    pending: new Set(), wake: null, observes: false, ignoredImages: new WeakSet(), frames: new Set(),
  };
  state.frames.add(window);

  const open = () => {
    if (state.cause === 0) { state.cause = state.nextCause++; state.openedAt = now(); }
  };
  const causeNow = () => (state.current === null ? state.cause : state.current);
  const notify = () => { const wake = state.wake; state.wake = null; if (wake) wake(); };
  const begin = (kind, cause, due = Infinity) => {
    if (cause === 0 || cause !== state.cause) return null;
    const entry = { kind, cause, due, view: window };
    state.pending.add(entry);
    return entry;
  };
  const end = (entry) => { if (entry && state.pending.delete(entry)) notify(); };
  const runAs = (cause, callback) => {
    const before = state.current;
    state.current = cause;
    try { return callback(); } finally { state.current = before; }
  };

  // Promise continuations run as microtasks right after this task: they inherit the cause until the
  // next task resets it.
  const channel = new MessageChannel();
  channel.port1.onmessage = () => { state.current = null; };
  const continueAs = (cause) => { state.current = cause; channel.port2.postMessage(0); };
  const track = (promise, kind, cause) => {
    const entry = begin(kind, cause);
    return promise.then(
      (value) => { continueAs(cause); end(entry); return value; },
      (error) => { continueAs(cause); end(entry); throw error; },
    );
  };

  const timers = new Map();
  const frames = new Map();
  window.setTimeout = function setTimeout(handler, delay, ...args) {
    const cause = causeNow();
    const ms = Math.max(0, Number(delay) || 0);
    if (typeof handler !== "function") return native.setTimeout.call(window, handler, delay, ...args);
    const entry = ms <= TIMER_LIMIT_MS ? begin("timer", cause, now() + ms) : null;
    const id = native.setTimeout.call(window, function run(...given) {
      timers.delete(id);
      try { return runAs(cause, () => handler.apply(this, given)); } finally { end(entry); }
    }, delay, ...args);
    if (entry) timers.set(id, entry);
    return id;
  };
  window.setInterval = function setInterval(handler, delay, ...args) {
    const cause = causeNow();
    const ms = Math.max(0, Number(delay) || 0);
    if (typeof handler !== "function") return native.setInterval.call(window, handler, delay, ...args);
    const entry = ms <= TIMER_LIMIT_MS ? begin("timer", cause, now() + ms) : null;
    const id = native.setInterval.call(window, function run(...given) {
      try { return runAs(cause, () => handler.apply(this, given)); } finally { end(entry); }
    }, delay, ...args);
    if (entry) timers.set(id, entry);
    return id;
  };
  const clears = (nativeClear, entries) => (id) => {
    end(entries.get(id));
    entries.delete(id);
    return nativeClear.call(window, id);
  };
  window.clearTimeout = clears(native.clearTimeout, timers);
  window.clearInterval = clears(native.clearInterval, timers);
  window.requestAnimationFrame = function requestAnimationFrame(callback) {
    const cause = causeNow();
    if (typeof callback !== "function") return native.requestAnimationFrame.call(window, callback);
    const entry = begin("frame", cause, now() + TIMER_LIMIT_MS);
    const id = native.requestAnimationFrame.call(window, (time) => {
      frames.delete(id);
      try { return runAs(cause, () => callback(time)); } finally { end(entry); }
    });
    if (entry) frames.set(id, entry);
    return id;
  };
  window.cancelAnimationFrame = clears(native.cancelAnimationFrame, frames);

  window.fetch = function fetch(...args) {
    return track(native.fetch.apply(window, args), "fetch", causeNow());
  };
  for (const name of ["json", "text", "blob", "arrayBuffer", "formData"]) {
    const read = Response.prototype[name];
    Response.prototype[name] = function () { return track(read.call(this), "fetch", causeNow()); };
  }
  XMLHttpRequest.prototype.send = function send(...args) {
    const cause = causeNow();
    const entry = begin("fetch", cause);
    this.addEventListener("readystatechange", () => continueAs(cause));
    this.addEventListener("loadend", () => end(entry), { once: true });
    try { return native.send.apply(this, args); } catch (error) { end(entry); throw error; }
  };
  window.IntersectionObserver = new Proxy(window.IntersectionObserver, {
    construct(target, args, self) { state.observes = true; return Reflect.construct(target, args, self); },
  });

  for (const type of ["pointerdown", "pointerup", "pointermove", "mousedown", "mouseup", "mousemove",
    "click", "dblclick", "contextmenu", "keydown", "keyup", "wheel", "drop"]) {
    window.addEventListener(type, (event) => { if (event.isTrusted) open(); },
      { capture: true, passive: true });
  }
  window.addEventListener("pagehide", () => {
    for (const entry of state.pending) if (entry.view === window) end(entry);
    state.frames.delete(window);
  });

  const documents = () => {
    const found = [];
    for (const view of state.frames) {
      try { if (!view.closed && view.document) found.push(view.document); } catch { /* became cross-origin */ }
    }
    return found;
  };

  // A finite animation that began with the action ends by itself; an endless one never does, and
  // one that outlasts the cap is not worth waiting for.
  const animates = (doc, capLeftMs) => doc.getAnimations().some((animation) => {
    if (animation.playState !== "running" || animation.timeline !== doc.timeline) return false;
    const timing = animation.effect?.getComputedTiming();
    if (!timing || !Number.isFinite(timing.endTime)) return false;
    const left = (timing.endTime - (animation.currentTime ?? 0)) / Math.abs(animation.playbackRate || 1);
    return left > 0 && left <= capLeftMs;
  });
  const loadsImage = (doc) => {
    const late = now() - state.openedAt > IMAGE_LIMIT_MS;
    for (const image of doc.images) {
      if (image.complete || !image.src || state.ignoredImages.has(image)) continue;
      if (late) { state.ignoredImages.add(image); continue; }
      const box = image.getBoundingClientRect();
      const view = doc.defaultView;
      if (box.bottom > 0 && box.right > 0 && box.top < view.innerHeight && box.left < view.innerWidth) return true;
    }
    return false;
  };
  const pendingKinds = (capLeftMs) => {
    const kinds = new Set();
    for (const entry of state.pending) {
      if (entry.cause !== state.cause || now() > entry.due + TIMER_GRACE_MS || entry.view.closed) state.pending.delete(entry);
      else kinds.add(entry.kind);
    }
    for (const doc of documents()) {
      if (animates(doc, capLeftMs)) kinds.add("animation");
      if (loadsImage(doc)) kinds.add("image");
    }
    return kinds;
  };

  // Background tasks run when every queued task of the page has run.
  const queueDrained = () => scheduler.postTask(() => {}, { priority: "background" });
  const rendered = () => new Promise((resolve) => {
    native.requestAnimationFrame.call(window, () => native.setTimeout.call(window, resolve, 0));
    native.setTimeout.call(window, resolve, 100);
  });
  const parsed = (limitMs) => new Promise((resolve) => {
    if (document.readyState !== "loading") { resolve(); return; }
    document.addEventListener("readystatechange", resolve, { once: true });
    native.setTimeout.call(window, resolve, limitMs);
  });
  const changeOr = (ms) => new Promise((resolve) => {
    state.wake = resolve;
    native.setTimeout.call(window, resolve, Math.max(0, Math.min(ms, RECHECK_MS)));
  });

  async function settle(capMs, parseMs, scrolled) {
    const waitedFor = new Set();
    const asked = now();
    if (document.readyState === "loading") { waitedFor.add("parse"); await parsed(parseMs); }
    const started = now();
    let reason = "idle";
    if (scrolled || state.observes) await rendered();
    for (;;) {
      await queueDrained();
      const left = capMs - (now() - started);
      const kinds = pendingKinds(Math.max(0, left));
      if (kinds.size === 0) break;
      for (const kind of kinds) waitedFor.add(kind);
      if (left <= 0) { reason = "cap"; break; }
      await changeOr(left);
    }
    state.cause = 0;
    state.pending.clear();
    return {
      reason, ms: now() - asked, waited_for: [...waitedFor],
      title: document.title, url: location.href, width: innerWidth, height: innerHeight,
    };
  }

  Object.defineProperty(window, KEY, { value: Object.freeze({ state, open, settle }) });
})();
