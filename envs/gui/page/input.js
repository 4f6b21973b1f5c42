// Helpers of actions besides trusted input: where an element can be reached, the focus,
// fields that are set rather than typed, options, scrolling, and coming to rest. Stands on snapshot.js.
// What cannot be done is {why: in words}.
(key) => {
  "use strict";
  const world = globalThis[key];
  if (!world || world.locate) return;
  const { elements, nameOf, roleOf, ownName, wordsOf, clean, isField, isFrame, parentOf, shift, boxOf,
    partsOf, hitAt, within, relation, clipped, isWhole } = world;

  const SET = { date: "YYYY-MM-DD", time: "HH:MM", month: "YYYY-MM", week: "YYYY-Www",
    "datetime-local": "YYYY-MM-DDTHH:MM", color: "#rrggbb", range: "a number" };
  const KEYED = new Set(["textbox", "searchbox", "combobox", "spinbutton", "clickable", "application"]);
  const QUIET_MS = 20; // longer than a frame
  const RESTLESS_MS = 600; // waited for an animation, at most
  const NEAR = [0.5, 0.25, 0.75, 0.1, 0.9];

  // -- words --------------------------------------------------------------------------------------
  const styled = (el) => ({ cursor: getComputedStyle(parentOf(el) ?? el).cursor, svg: true });
  const roleAt = (el) => roleOf(el, getComputedStyle(el), styled(el)) || "clickable";
  const called = (el) => {
    const role = roleAt(el);
    return `${role} "${nameOf(el, role, false)}"`;
  };
  const said = (id, el) => `${called(el)} [${id}]`;
  const find = (id) => {
    const el = elements.get(id);
    const last = world.last();
    if (!el) {
      const known = last ? `known are [1] to [${last}]` : "there are none on this page";
      return { why: `there is no element [${id}]; ${known}` };
    }
    if (!el.isConnected) return { why: `[${id}] is gone: the page has changed` };
    return { el };
  };
  const named = (el) => clean(ownName(el) || wordsOf(el.querySelector("h1,h2,h3,legend") ?? el) ||
    el.getAttribute("title") || "", 60) || `<${el.localName}>`;
  // The outermost element over `el` that does not hold it.
  const coverName = (hit, el) => {
    let top = hit;
    for (let up = hit; up && !isWhole(up) && !within(el, up); up = parentOf(up)) top = up;
    return named(top);
  };
  const isOff = (el) => el.matches(":disabled") || el.getAttribute("aria-disabled") === "true";

  // -- where --------------------------------------------------------------------------------------
  const outside = (x, y) => x < 0 || y < 0 || x >= innerWidth || y >= innerHeight;
  const place = (x, y) => {
    watch();
    if (!outside(x, y)) return {};
    return { why: `(${x}, ${y}) is outside of the page's ${innerWidth} x ${innerHeight} pixels` };
  };
  const points = (el) => {
    const [dx, dy] = shift(el);
    const found = [];
    for (const box of partsOf(el)) {
      for (const v of NEAR) for (const u of NEAR) {
        found.push([box.x + dx + box.width * u, box.y + dy + box.height * v]);
      }
    }
    return found;
  };
  const aim = (el) => {
    let behind = null, cover = null;
    for (const [x, y] of points(el)) {
      if (outside(x, y) || clipped(el, x, y)) continue;
      const hit = hitAt(x, y);
      const how = relation(hit, el);
      if (how === "self") return { x, y };
      if (how === "behind") behind ??= { x, y };
      else if (how === "other") cover ??= hit;
    }
    return { behind, cover };
  };
  const inView = (el) => {
    const [first] = points(el);
    return first !== undefined && !outside(...first) && !clipped(el, ...first);
  };
  const reach = (id, el) => {
    if (!boxOf(el) || getComputedStyle(el).visibility !== "visible") {
      return { why: `${said(id, el)} is not visible` };
    }
    if (!inView(el)) el.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    let found = aim(el);
    if (found.x === undefined && !found.behind) {
      el.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
      found = aim(el);
    }
    if (found.x !== undefined) return found;
    if (found.cover) return { why: `[${id}] is covered by "${coverName(found.cover, el)}"` };
    return found.behind ?? { why: `${said(id, el)} cannot be brought into view` };
  };
  const locate = (id, doing) => {
    watch();
    const { el, why } = find(id);
    if (why) return { why };
    if (doing === "click") {
      if (isOff(el)) return { why: `${said(id, el)} is disabled` };
      if (el.localName === "select") {
        return { why: `${said(id, el)} is a list of options: choose one with select(${id}, OPTION)` };
      }
      if (el.localName === "input" && el.type === "file") return { why: `${said(id, el)}: files cannot be chosen` };
    }
    return reach(id, el);
  };

  // -- fields -------------------------------------------------------------------------------------
  const deepFocus = () => {
    let el = document.activeElement;
    for (let left = 20; el && left; left--) {
      const inner = el.shadowRoot?.activeElement ??
        (isFrame(el) ? el.contentDocument?.activeElement : null);
      if (!inner) break;
      el = inner;
    }
    return el;
  };
  const take = (id, el) => {
    if (isOff(el)) return `${said(id, el)} is disabled`;
    const reached = reach(id, el);
    if (reached.why) return reached.why;
    el.ownerDocument.defaultView.focus();
    el.focus({ preventScroll: true });
    const now = deepFocus();
    if (now === el || now && within(now, el)) return "";
    return `${said(id, el)} cannot take the keyboard's focus`;
  };
  const focus = (id) => {
    watch();
    const { el, why } = find(id);
    const failed = why ?? (deepFocus() === el ? "" : take(id, el));
    return failed ? { why: failed } : {};
  };
  const unfit = (id, el, text) => {
    if (isField(el) && el.readOnly === true) return `${said(id, el)} is read-only`;
    if (el.localName === "select") return `${said(id, el)} is a list of options: use select(${id}, OPTION)`;
    if (el.localName === "input") {
      if (["checkbox", "radio", "button", "submit", "reset", "image"].includes(el.type)) {
        return `${said(id, el)} is not a field that one can type in: click it`;
      }
      if (el.type === "file") return `${said(id, el)}: files cannot be chosen`;
      if (el.type === "number" && text.trim() !== "" && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text.trim())) {
        return `${said(id, el)} wants a number, not ${JSON.stringify(clean(text, 60))}`;
      }
    } else if (!isField(el) && !el.isContentEditable && (el.tabIndex < 0 || !KEYED.has(roleAt(el)))) {
      return `${said(id, el)} is not a field that one can type in`;
    }
    return "";
  };
  const select = (el) => {
    if (isField(el)) return el.select();
    if (!el.isContentEditable) return;
    const range = el.ownerDocument.createRange();
    range.selectNodeContents(el);
    const chosen = el.ownerDocument.getSelection();
    chosen.removeAllRanges();
    chosen.addRange(range);
  };
  // Get a field ready for what is typed: "keys" into the focus, or "set" when it is set already.
  const ready = (id, text) => {
    watch();
    if (id === null) {
      const el = deepFocus();
      if (el && !isWhole(el)) return { how: "keys", lines: el.localName === "textarea" || el.isContentEditable };
      return { why: "nothing has the keyboard's focus: say which field by its number, or click it first" };
    }
    const { el, why } = find(id);
    if (why) return { why };
    const failed = (isOff(el) ? `${said(id, el)} is disabled` : "") || unfit(id, el, text) || take(id, el);
    if (failed) return { why: failed };
    if (el.localName === "input" && el.type in SET) return put(id, el, text.trim());
    const own = isField(el) || el.isContentEditable;
    if (own) select(el);
    const held = isField(el) ? el.value : el.textContent;
    return { how: "keys", lines: el.localName === "textarea" || el.isContentEditable, empty: !own || held === "" };
  };
  const tell = (el) => {
    el.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    el.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const put = (id, el, text) => {
    const before = el.value;
    const given = el.type === "color" ? text.toLowerCase() : text;
    const fits = el.type === "range" ? text !== "" && Number.isFinite(Number(text))
      : el.type !== "color" || /^#[0-9a-f]{6}$/.test(given);
    if (fits) el.value = given;
    if (!fits || text !== "" && el.value === "") {
      el.value = before;
      return { why: `${said(id, el)} wants ${SET[el.type]}, not ${JSON.stringify(clean(text, 60))}` };
    }
    if (el.value !== before) tell(el);
    if (el.type === "range" && Number(el.value) !== Number(given)) {
      const [low, high, step] = [el.min || 0, el.max || 100, el.step || 1];
      return { why: `${said(id, el)} goes from ${low} to ${high} in steps of ${step}: it is at ${el.value} now` };
    }
    return { how: "set" };
  };

  // -- options ------------------------------------------------------------------------------------
  const fold = (text) => clean(text, 1000);
  const pick = (options, text) => {
    const wanted = fold(text);
    return options.find((option) => fold(option.label) === wanted) ??
      options.find((option) => option.value === text) ??
      options.find((option) => fold(option.label).toLowerCase() === wanted.toLowerCase());
  };
  const picks = (el, options, text) => {
    const one = pick(options, text);
    if (one) return [one];
    if (!el.multiple) return [];
    if (text.trim() === "") return null;
    for (const sign of ["\n", ","]) {
      const parts = text.split(sign).map((part) => part.trim()).filter(Boolean);
      const found = parts.map((part) => pick(options, part));
      if (parts.length > 1 && found.every(Boolean)) return found;
    }
    return [];
  };
  const listed = (options) => {
    const labels = options.slice(0, 30).map((option) => `"${clean(option.label, 80)}"`).join(", ");
    return options.length > 30 ? `${labels} and ${options.length - 30} more` : labels || "none";
  };
  const choose = (id, text) => {
    watch();
    const { el, why } = find(id);
    if (why) return { why };
    if (el.localName !== "select") {
      return { why: `${said(id, el)} is not a list of options: click it, then click what you want` };
    }
    if (isOff(el)) return { why: `${said(id, el)} is disabled` };
    const reached = reach(id, el);
    if (reached.why) return reached;
    const options = Array.from(el.options);
    const found = picks(el, options, text);
    if (found && !found.length) {
      return { why: `${said(id, el)} has no option ${JSON.stringify(clean(text, 80))}; it has ${listed(options)}` };
    }
    const off = (found ?? []).find((option) => option.disabled || option.parentElement?.disabled);
    if (off) return { why: `the option "${clean(off.label, 80)}" of [${id}] is disabled` };
    el.focus({ preventScroll: true });
    const before = options.map((option) => option.selected).join();
    if (el.multiple) for (const option of options) option.selected = (found ?? []).includes(option);
    else found[0].selected = true;
    if (options.map((option) => option.selected).join() !== before) tell(el);
    return {};
  };

  // -- scrolling ----------------------------------------------------------------------------------
  const room = (el, across) => across ? el.scrollWidth - el.clientWidth : el.scrollHeight - el.clientHeight;
  const scrolls = (el, across) => {
    if (room(el, across) < 1) return false;
    if (el === el.ownerDocument.scrollingElement) return true;
    const style = getComputedStyle(el);
    return /auto|scroll|overlay/.test(across ? style.overflowX : style.overflowY) || el.localName === "textarea";
  };
  const around = (el, across) => {
    for (let up = el, left = 1000; up && left; up = parentOf(up), left--) {
      if (scrolls(up, across)) return up;
    }
    return null;
  };
  const largest = (across) => {
    let best = null, most = 0, left = 5000;
    for (const el of document.querySelectorAll("*")) {
      if (--left < 0) break;
      const size = el.clientWidth * el.clientHeight;
      if (size > most && scrolls(el, across)) [best, most] = [el, size];
    }
    return best;
  };
  const scroll = (id, x, y, direction, amount) => {
    watch();
    const across = direction === "left" || direction === "right";
    let target = null;
    if (id !== null) {
      const { el, why } = find(id);
      if (why) return { why };
      target = around(el, across);
    } else if (x !== null) {
      if (outside(x, y)) return place(x, y);
      target = around(hitAt(x, y), across);
    } else {
      const page = document.scrollingElement;
      target = page && scrolls(page, across) ? page : around(hitAt(innerWidth / 2, innerHeight / 2), across) ?? largest(across);
    }
    const what = id === null ? "the page" : `[${id}]`;
    if (!target) return { why: `${what} has nothing to scroll ${direction}` };
    const size = target === document.scrollingElement
      ? (across ? innerWidth : innerHeight) : across ? target.clientWidth : target.clientHeight;
    const by = size * amount * (direction === "up" || direction === "left" ? -1 : 1);
    const before = [target.scrollLeft, target.scrollTop];
    target.scrollBy({ left: across ? by : 0, top: across ? 0 : by, behavior: "instant" });
    if (before[0] === target.scrollLeft && before[1] === target.scrollTop) {
      return { why: `${what} cannot be scrolled further ${direction}` };
    }
    return {};
  };

  // -- rest ---------------------------------------------------------------------------------------
  let observer = null, changes = 0, moving = false, restless = 0;
  const note = (records) => {
    changes++;
    moving ||= records.some((record) => record.attributeName === "style");
  };
  const watch = () => {
    observer ??= new MutationObserver(note);
    changes = 0;
    moving = false;
    observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  };
  const task = () => new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { channel.port1.close(); done(); };
    channel.port2.postMessage(0);
  });
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const ending = () => document.getAnimations().filter((one) => one.playState === "running" &&
    Number.isFinite(Number(one.effect?.getComputedTiming().endTime)));
  // Two tasks. Then, where styles were changed or a transition runs, until nothing has changed for a
  // moment. A page that never comes to rest gets less and less of our time.
  const calm = async () => {
    await task();
    await pause(0);
    await task();
    if (moving || changes && ending().length) {
      const end = performance.now() + RESTLESS_MS / (1 << restless);
      let before = -1;
      while ((changes !== before || ending().length) && performance.now() < end) {
        before = changes;
        await pause(QUIET_MS);
      }
      restless = performance.now() < end ? 0 : Math.min(restless + 1, 6);
    }
    observer?.disconnect();
    return true;
  };

  Object.assign(world, { locate, place, focus, ready, choose, scroll, calm });
}
