// The visible part of a page: numbered elements and lines of text. Runs in an isolated world, where the
// page can neither see nor change anything; `key` names what is left there, `hint` is the event with
// which listeners.js tells of elements that listen to the mouse.
(key, hint) => {
  "use strict";
  if (globalThis[key]) return;

  const MAX_NODES = 10000; // walked in one look; what follows is left out, and a line says so
  const MAX_DEPTH = 400;
  const MAX_NAME = 80; // code points
  const MAX_TEXT = 2000; // code points of one text or value
  const MAX_ALL = 300000; // characters of all texts
  const MAX_OPTIONS = 100;
  const MAX_HITS = 400; // elements that are tested for being covered or clipped

  const SILENT = new Set(["script", "style", "template", "noscript", "head", "title", "meta", "link",
    "datalist", "param", "source", "track", "option", "optgroup", "object", "embed"]);
  const ROLES = new Set(["button", "link", "checkbox", "radio", "switch", "tab", "option", "menuitem",
    "menuitemcheckbox", "menuitemradio", "treeitem", "textbox", "searchbox", "spinbutton", "slider",
    "combobox"]);
  const INPUTS = { button: "button", submit: "button", reset: "button", image: "button",
    file: "button", checkbox: "checkbox", radio: "radio", range: "slider", number: "spinbutton" };
  const SHAPES = new Set(["rect", "circle", "ellipse", "polygon", "polyline", "line", "path", "text",
    "image", "use"]);
  const HANDLE = ".ui-sortable-handle,.ui-draggable,.ui-draggable-handle,.ui-selectee";
  const WITHIN = HANDLE + ",a[href],button,input,select,textarea,summary,canvas,iframe,frame,[role=button],[role=link]," +
    "[role=tab],[role=option],[role=menuitem],[role=treeitem],[role=checkbox],[role=radio]," +
    "[role=switch],[role=slider],[onclick],[tabindex],[draggable=true],[contenteditable]";
  const POINTERS = /^(pointer|move|grab)$|-resize$/;
  const INLINE = /^(inline|contents|ruby)/;
  const TYPED = new Set(["textbox", "searchbox", "spinbutton", "combobox"]);
  const HANDLES = ["onclick", "onmousedown", "onmouseup", "onpointerdown", "ondblclick"];
  // Tabs and line ends are space; other control characters and those that turn the direction of
  // writing are dropped.
  const ODD = /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

  // -- numbers ------------------------------------------------------------------------------------
  const numbers = new WeakMap();
  const elements = new Map(); // id -> element; held, so that a number never passes to another one
  const heard = new WeakSet(); // elements that listen to the mouse
  let last = 0;

  const hear = (event) => {
    event.stopImmediatePropagation();
    event.preventDefault(); // says that it was heard
    if (event.relatedTarget) heard.add(event.relatedTarget);
  };
  const listen = () => {
    addEventListener(hint, hear, true);
    dispatchEvent(new Event(hint + "?")); // what was not heard until now
  };
  const idOf = (el) => {
    let id = numbers.get(el);
    if (id === undefined) {
      id = ++last;
      numbers.set(el, id);
      elements.set(id, el);
    }
    return id;
  };
  const prune = () => {
    if (elements.size < 5000) return;
    for (const [id, el] of elements) if (!el.isConnected) elements.delete(id);
  };

  // -- words --------------------------------------------------------------------------------------
  const cut = (text, most) => {
    if (text.length <= most) return text;
    const points = Array.from(text.length > most * 2 + 2 ? text.slice(0, most * 2 + 2) : text);
    return points.length <= most ? text : points.slice(0, most - 1).join("") + "…";
  };
  const bare = (text) => text.replace(ODD, "").toWellFormed();
  const clean = (text, most) => {
    if (text.length > most * 40) text = text.slice(0, most * 40) + "…";
    return cut(bare(text.replace(/\s+/g, " ")).trim(), most);
  };

  const isField = (el) => {
    const tag = el.localName;
    return tag === "input" || tag === "select" || tag === "textarea";
  };
  const isFrame = (el) => el.localName === "iframe" || el.localName === "frame";
  const editable = (el) => el.isContentEditable === true && !(el.parentElement?.isContentEditable);
  const parentOf = (el) => el.assignedSlot || el.parentElement ||
    (el.parentNode instanceof ShadowRoot ? el.parentNode.host : null) ||
    (el.ownerDocument !== document && el.ownerDocument?.documentElement === el
      ? el.ownerDocument.defaultView?.frameElement ?? null : null);
  const childrenOf = (el) => {
    if (el.shadowRoot) return el.shadowRoot.childNodes;
    if (el.localName === "slot") {
      const given = el.assignedNodes();
      if (given.length) return given;
    }
    return el.childNodes;
  };

  // All elements in one, those of open shadow roots too.
  const inOf = function* (el) {
    if (el.shadowRoot) yield* inOf(el.shadowRoot);
    for (const child of el.querySelectorAll("*")) {
      yield child;
      if (child.shadowRoot) yield* inOf(child.shadowRoot);
    }
  };

  // Text of what is visible in an element; form fields do not count.
  const wordsOf = (top) => {
    if (!top.firstElementChild && !top.shadowRoot) return top.textContent;
    let out = "";
    let left = 400;
    const visit = (el, depth) => {
      for (const child of childrenOf(el)) {
        if (out.length > 2000 || --left < 0) return;
        if (child.nodeType === 3) out += child.data;
        else if (child.nodeType === 1) {
          const tag = child.localName;
          if (tag === "br") out += " ";
          else if (tag === "img") out += " " + (child.alt ?? "") + " ";
          else if (tag === "svg") out += " " + (child.querySelector("title")?.textContent ?? "") + " ";
          else if (!SILENT.has(tag) && !isField(child) && depth < 50) {
            const style = getComputedStyle(child);
            if (style.display === "none" || style.visibility !== "visible") continue;
            if (child.getAttribute("aria-hidden") === "true") continue;
            const gap = INLINE.test(style.display) ? "" : " ";
            out += gap;
            visit(child, depth + 1);
            out += gap;
          }
        }
      }
    };
    visit(top, 0);
    return out;
  };

  const COLOURS = { "255,0,0": "red", "0,128,0": "green", "0,255,0": "lime", "0,0,255": "blue",
    "255,255,0": "yellow", "255,165,0": "orange", "128,0,128": "purple", "255,192,203": "pink",
    "0,255,255": "cyan", "255,0,255": "magenta", "0,0,0": "black", "255,255,255": "white",
    "128,128,128": "gray", "165,42,42": "brown", "128,128,0": "olive", "0,0,128": "navy" };
  const colour = (text) => {
    const found = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/.exec(text);
    if (!found || found[4] === "0") return "";
    const [r, g, b] = [+found[1], +found[2], +found[3]];
    return COLOURS[`${r},${g},${b}`] ??
      "#" + [r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("");
  };

  // Description of something that has no words: its colour and shape, else its picture or class.
  const hintOf = (el) => {
    const tag = el.localName;
    const style = getComputedStyle(el);
    if (SHAPES.has(tag) && el.namespaceURI !== "http://www.w3.org/1999/xhtml") {
      return [colour(style.fill) || colour(style.stroke), tag].filter(Boolean).join(" ");
    }
    if (tag === "canvas" || tag === "svg") return tag;
    const image = tag === "img" ? el : el.querySelector("img[src]");
    const source = image ? image.getAttribute("src") ?? "" : "";
    if (source && !source.startsWith("data:")) return source.split(/[?#]/)[0].split("/").pop();
    const about = typeof el.className === "string" ? el.className.trim().split(/\s+/).slice(0, 2).join(".") : "";
    const word = about ? "." + about : el.id ? "#" + el.id : "";
    return [colour(style.backgroundColor), word].filter(Boolean).join(" ");
  };

  const byIds = (el, ids) => {
    const root = el.getRootNode();
    return ids.trim().split(/\s+/).slice(0, 10)
      .map((id) => root.getElementById?.(id)).filter(Boolean).map(wordsOf).join(" ");
  };
  const labelled = (el) => {
    if (!el.labels || !el.labels.length) return "";
    return clean(Array.from(el.labels).slice(0, 5).map(wordsOf).join(" "), MAX_NAME);
  };
  const ownName = (el) => {
    const ids = el.getAttribute("aria-labelledby");
    return (ids && clean(byIds(el, ids), MAX_NAME)) ||
      clean(el.getAttribute("aria-label") ?? "", MAX_NAME);
  };
  const buttonWords = (el) => {
    if (el.localName !== "input") return "";
    if (el.type === "submit") return el.hasAttribute("value") ? el.value : "Submit";
    if (el.type === "reset") return el.hasAttribute("value") ? el.value : "Reset";
    if (el.type === "file") return "Choose file";
    return el.type === "button" ? el.value : "";
  };
  const nameOf = (el, role, holds) => {
    const words = () => (isField(el) || editable(el) || holds ? "" : wordsOf(el));
    const sources = [() => ownName(el), () => labelled(el), () => el.getAttribute("alt"),
      () => buttonWords(el), words, () => el.getAttribute("placeholder"),
      () => el.getAttribute("title"),
      () => el.querySelector?.(":scope > title")?.textContent,
      () => (isField(el) || editable(el) || holds ? "" : hintOf(el))];
    for (const source of sources) {
      const name = clean(source() ?? "", MAX_NAME);
      if (name) return name;
    }
    return "";
  };

  // -- what an element is -------------------------------------------------------------------------
  const ariaRole = (el) => (el.getAttribute("role") ?? "").trim().split(/\s+/)[0].toLowerCase();
  const nativeRole = (el) => {
    switch (el.localName) {
      case "a": case "area": return el.hasAttribute("href") ? "link" : "";
      case "button": return "button";
      case "input": return INPUTS[el.type] ?? "textbox";
      case "textarea": return "textbox";
      case "select": return el.multiple || el.size > 1 ? "listbox" : "combobox";
      case "summary": return el.parentElement?.localName === "details" ? "button" : "";
      default: return editable(el) ? "textbox" : "";
    }
  };
  const listens = (el) => {
    const there = el.ownerDocument.defaultView?.[key];
    if ((there ? there.heard : heard).has(el)) return true;
    for (const name of HANDLES) if (el.hasAttribute(name)) return true;
    return false;
  };
  const isWhole = (el) => el === el.ownerDocument.body || el === el.ownerDocument.documentElement;
  // Something that is clickable though it is nothing that HTML or ARIA has a word for.
  const looseRole = (el, style, up) => {
    if (isWhole(el) || style.pointerEvents === "none") return "";
    const tag = el.localName;
    const live = listens(el) || el.tabIndex >= 0 && el.hasAttribute("tabindex") ||
      el.getAttribute("draggable") === "true" || tag === "canvas" ||
      POINTERS.test(style.cursor) && style.cursor !== up.cursor ||
      el.matches(HANDLE) ||
      up.svg && SHAPES.has(tag);
    if (!live) return "";
    return ariaRole(el) || (tag === "img" ? "image" : "clickable");
  };
  const roleOf = (el, style, up) => {
    const aria = ariaRole(el);
    if (ROLES.has(aria)) return aria;
    return nativeRole(el) || looseRole(el, style, up);
  };

  const stateOf = (el, role) => {
    const on = (name) => el.getAttribute("aria-" + name) === "true";
    const states = [];
    const native = el.localName === "input" && (el.type === "checkbox" || el.type === "radio");
    if (native ? el.checked : on("checked") || on("pressed")) states.push("checked");
    if (on("selected")) states.push("selected");
    if (on("expanded") || el.localName === "summary" && el.parentElement?.open) states.push("expanded");
    if (el.matches(":disabled") || on("disabled")) states.push("disabled");
    if (el.required === true || on("required")) states.push("required");
    if (TYPED.has(role) && el.localName !== "select" && el.getRootNode().activeElement === el &&
      el.ownerDocument.hasFocus()) states.push("focused");
    return states;
  };
  const chosen = (el) => Array.from(el.selectedOptions).map((option) => option.label.trim()).join(", ");
  const valueOf = (el, role) => {
    switch (el.localName) {
      case "select": return clean(chosen(el), MAX_TEXT);
      case "textarea": return cut(bare(el.value), MAX_TEXT);
      case "input": {
        if (el.type === "password") return "•".repeat(Math.min(Array.from(el.value).length, 100));
        if (el.type === "file") return cut(bare(Array.from(el.files, (file) => file.name).join(", ")), MAX_TEXT);
        return role === "checkbox" || role === "radio" || role === "button" || role === "switch"
          ? "" : cut(bare(el.value), MAX_TEXT);
      }
    }
    if (editable(el)) return cut(bare(el.innerText ?? "").trim(), MAX_TEXT);
    return clean(el.getAttribute("aria-valuetext") ?? el.getAttribute("aria-valuenow") ?? "", MAX_TEXT);
  };
  const optionsOf = (el) => {
    if (el.localName !== "select") return [];
    const labels = [];
    for (const option of el.options) {
      if (labels.length === MAX_OPTIONS) {
        labels.push(`… ${el.options.length - MAX_OPTIONS} more`);
        break;
      }
      labels.push(clean(option.label, MAX_NAME));
    }
    return labels;
  };

  // -- where it is --------------------------------------------------------------------------------
  const shift = (el) => { // of the frame that an element is in, to the top one
    let x = 0, y = 0;
    for (let view = el.ownerDocument.defaultView; view && view !== globalThis;) {
      const frame = view.frameElement;
      if (!frame) break;
      const box = frame.getBoundingClientRect();
      const style = getComputedStyle(frame);
      x += box.x + frame.clientLeft + parseFloat(style.paddingLeft);
      y += box.y + frame.clientTop + parseFloat(style.paddingTop);
      view = frame.ownerDocument.defaultView;
    }
    return [x, y];
  };
  const solid = (box) => box.width > 0 && box.height > 0;
  const thin = (el, box) => el.localName === "line" || el.localName === "path" || el.localName === "polyline"
    ? box.width > 0 || box.height > 0 : false;
  const boxOf = (el) => {
    const box = el.getBoundingClientRect();
    if (solid(box) || thin(el, box)) return box;
    let left = 20;
    for (const child of inOf(el)) {
      if (--left < 0) break;
      const inner = child.getBoundingClientRect();
      if (solid(inner) && getComputedStyle(child).visibility === "visible") return inner;
    }
    return null;
  };
  // Where it can be clicked: an inline element that is broken over lines has several boxes.
  const partsOf = (el) => {
    const boxes = Array.from(el.getClientRects()).filter(solid).slice(0, 8);
    if (!boxes.length) {
      const box = boxOf(el);
      return box ? [box] : [];
    }
    return boxes.sort((a, b) => b.width * b.height - a.width * a.height);
  };
  const hitAt = (x, y) => {
    let root = document;
    let hit = null;
    for (let depth = 0; depth < 20; depth++) {
      const found = root.elementFromPoint(x, y);
      if (!found || found === hit) return hit;
      hit = found;
      if (hit.shadowRoot) root = hit.shadowRoot;
      else if (isFrame(hit) && hit.contentDocument) {
        const box = hit.getBoundingClientRect();
        const style = getComputedStyle(hit);
        x -= box.x + hit.clientLeft + parseFloat(style.paddingLeft);
        y -= box.y + hit.clientTop + parseFloat(style.paddingTop);
        root = hit.contentDocument;
      } else return hit;
    }
    return hit;
  };
  const within = (inner, outer) => {
    for (let el = inner, left = 2000; el && left; el = parentOf(el), left--) {
      if (el === outer || el.localName === "label" && el.control === outer) return true;
    }
    return false;
  };
  // "self": a click there reaches it; "behind": something around it; "other": something over it. The
  // page around a frame hears nothing of what is clicked in the frame.
  const relation = (hit, el) => !hit ? "none" : within(hit, el) ? "self" : !within(el, hit) ? "other"
    : hit.ownerDocument === el.ownerDocument ? "behind" : "none";
  // Whether what is positioned like this is laid out by something around it, and so clipped by it.
  const holds = (style, position) => position !== "fixed" && (position !== "absolute" || style.position !== "static") ||
    style.transform !== "none" || style.filter !== "none" || style.perspective !== "none" ||
    style.contain !== "none" || /transform|filter|perspective/.test(style.willChange);
  const EVERYWHERE = [-Infinity, -Infinity, Infinity, Infinity];
  const overlap = (one, other) => [Math.max(one[0], other[0]), Math.max(one[1], other[1]),
    Math.min(one[2], other[2]), Math.min(one[3], other[3])];
  // Where the boxes and frames that it is in show an element of this position: left, top, right,
  // bottom in the top window. `known` are those of elements around others, for one look.
  const shownAt = (el, position, known, left = 500) => {
    const up = parentOf(el);
    if (!up || !left) return EVERYWHERE;
    if (up.ownerDocument !== el.ownerDocument) {
      const [x, y] = shift(el);
      const view = el.ownerDocument.defaultView;
      return overlap(shownAt(up, getComputedStyle(up).position, known, left - 1),
        [x, y, x + view.innerWidth, y + view.innerHeight]);
    }
    if (!known.has(up)) known.set(up, {});
    return known.get(up)[position] ??= shownIn(up, position, known, left - 1);
  };
  const shownIn = (up, position, known, left) => {
    if (isWhole(up)) return shownAt(up, position, known, left);
    const style = getComputedStyle(up);
    if (!holds(style, position)) return shownAt(up, position, known, left);
    const shown = shownAt(up, style.position, known, left);
    if (style.overflowX === "visible" && style.overflowY === "visible") return shown;
    if (style.display === "inline" || style.display === "contents") return shown;
    const box = up.getBoundingClientRect();
    const [x, y] = shift(up);
    return overlap(shown, [x + box.left, y + box.top, x + box.right, y + box.bottom]);
  };
  const clipped = (el, x, y, known = new Map()) => {
    const [left, top, right, bottom] = shownAt(el, getComputedStyle(el).position, known);
    return x < left || x > right || y < top || y > bottom;
  };
  const isCovered = (el, x, y) => {
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return false;
    return relation(hitAt(x, y), el) === "other";
  };
  // Where a box is clicked first, and where else something of it would be seen.
  const SPOTS = [[0.5, 0.5], [0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]];
  const spotsOf = (box, up) => SPOTS.map(([u, v]) => [box.x + up.dx + box.width * u, box.y + up.dy + box.height * v]);

  // -- the walk -----------------------------------------------------------------------------------
  let lines, line, text, nodes, letters, hits, heading, row, full, bounds;

  const put = (part) => {
    if (heading) {
      heading = false;
      if (typeof part === "string") part = "# " + part;
      else line.push("#");
    }
    line.push(part);
  };
  const flush = () => {
    if (text === "") return;
    const said = clean(text, MAX_TEXT);
    text = "";
    if (said) {
      letters += said.length;
      if (letters > MAX_ALL) full = true;
      put(said);
    }
  };
  const endLine = () => {
    flush();
    if (line.some((part) => part !== "|")) lines.push(line);
    if (line.length) line = [];
  };
  const edge = () => (row ? flush() : endLine()); // of a block: a table row stays one line

  const add = (el, role, name, box, up, state) => {
    flush();
    const [x, y, w, h] = [box.x + up.dx, box.y + up.dy, box.width, box.height];
    const about = state ?? el;
    const states = stateOf(about, role);
    let out = false;
    if (++hits <= MAX_HITS) {
      const spots = spotsOf(partsOf(el)[0] ?? box, up);
      const first = spots.findIndex((spot) => !clipped(el, ...spot, bounds));
      out = first < 0;
      if (first === 0 && state === undefined && isCovered(el, ...spots[0])) states.push("covered");
    }
    const round = (number) => Math.round(number * 10) / 10;
    const value = state ? "" : valueOf(el, role);
    letters += name.length + value.length;
    put([idOf(el), role, name, value, states, optionsOf(el), round(x), round(y), round(w), round(h), out]);
  };

  const seen = (el) => {
    const style = getComputedStyle(el);
    return style.display !== "none" && style.visibility === "visible" && boxOf(el) !== null;
  };
  // True when the label is done with; else what of it is still to be walked.
  const label = (el, up) => {
    const control = el.control;
    if (!control || control.type === "hidden") return "walk";
    const role = nativeRole(control);
    if (seen(control)) {
      const words = labelled(control);
      return words && nameOf(control, role, false) === words ? "mute" : "walk";
    }
    if (role !== "checkbox" && role !== "radio" && control.type !== "file") return "walk";
    const box = boxOf(el);
    const name = clean(wordsOf(el), MAX_NAME) || ownName(control) || hintOf(el);
    if (!box) return "walk";
    add(el, role, name, box, up, control);
    return "done";
  };

  const frame = (el, up) => {
    if (!solid(el.getBoundingClientRect())) return;
    endLine();
    const inner = el.contentDocument;
    if (inner?.documentElement) {
      const top = inner.body ?? inner.documentElement;
      inner.defaultView?.[key]?.listen();
      const [dx, dy] = shift(top);
      const rowBefore = row;
      row = 0;
      visit(top, { dx, dy, mute: false, cursor: "", svg: false, depth: up.depth + 1 });
      row = rowBefore;
    } else text = `(frame: ${el.src || "about:blank"})`;
    endLine();
  };

  const visitAll = (el, down) => {
    for (const child of childrenOf(el)) {
      if (full) return;
      if (child.nodeType === 3) {
        if (++nodes > MAX_NODES) full = true;
        else if (down.shown && !down.mute) text += child.data;
      } else if (child.nodeType === 1) visit(child, down);
    }
  };
  const lineRow = (el, down) => {
    const before = row;
    endLine();
    row = { cells: 0 };
    visitAll(el, down);
    row = before;
    endLine();
  };
  const cell = () => {
    flush();
    if (row.cells++) line.push("|");
  };

  // Elements in it that are numbered themselves, as far as that is seen at a glance.
  const innerOf = (el) => {
    const found = [];
    let left = 200;
    for (const child of inOf(el)) {
      if (--left < 0 || found.length === 3) break;
      if (child.matches(WITHIN) || listens(child)) found.push(child);
    }
    return found;
  };
  const squeezed = (el) => wordsOf(el).replace(/\s+/g, " ").trim();
  // A numbered element. False when its content is to be walked like any other.
  const number = (el, role, style, up, down) => {
    const loose = !ROLES.has(role) && !nativeRole(el);
    const box = boxOf(el);
    if (!box) return !loose;
    if (isField(el) || editable(el) || !el.firstElementChild && !el.shadowRoot) {
      if (loose && squeezed(el).length > MAX_NAME) return false;
      add(el, role, nameOf(el, role, false), box, up);
      return true;
    }
    const inner = el.localName === "svg" ? [el.firstElementChild] : innerOf(el);
    const words = squeezed(el);
    const long = Array.from(words).length > MAX_NAME;
    const same = inner.length === 1 && words !== "" && squeezed(inner[0]) === words;
    if (loose && el.localName !== "svg") {
      const own = el.getAttribute("draggable") === "true" || POINTERS.test(style.cursor) && style.cursor !== up.cursor;
      if (same || (long || inner.length > 2) && !own) return false;
    }
    const holds = inner.length > 0 && !same || loose && long;
    add(el, role, nameOf(el, role, holds && long) || (el.localName === "svg" ? "svg" : ""), box, up);
    if (holds && !long) down.mute = true;
    return !holds;
  };

  // In a box without an extent that hides its overflow, only such content is seen.
  const floatsOut = (el, style) => {
    if (style.position !== "fixed" && style.position !== "absolute") return false;
    const [left, top, right, bottom] = shownAt(el, style.position, bounds);
    return left < right && top < bottom;
  };
  const visit = (el, up) => {
    if (full) return;
    if (++nodes > MAX_NODES || up.depth > MAX_DEPTH) { full = true; return; }
    const tag = el.localName;
    if (SILENT.has(tag)) return;
    if (tag === "br") { edge(); return; }
    if (el.getAttribute("aria-hidden") === "true" || tag === "input" && el.type === "hidden") return;
    const style = getComputedStyle(el);
    const display = style.display;
    if (display === "none" || el.getAttribute("hidden") === "until-found") return;
    if (up.folded ? !floatsOut(el, style)
      : style.overflowX !== "visible" && !isWhole(el) && !solid(el.getBoundingClientRect())) {
      visitAll(el, { ...up, cursor: style.cursor, depth: up.depth + 1, shown: false, folded: true });
      return;
    }
    const shown = style.visibility === "visible";
    const block = !INLINE.test(display) && !el.ownerSVGElement;
    const isCell = display === "table-cell" && row;
    if (isCell) cell();
    else if (block) edge();
    if (tag === "h1" || tag === "h2" || tag === "h3") heading = true;
    const down = { dx: up.dx, dy: up.dy, mute: up.mute, cursor: style.cursor, depth: up.depth + 1,
      shown, svg: up.svg || tag === "svg" && (listens(el) || livesIn(el)) };
    inside(el, tag, style, shown, up, down);
    if (block && !isCell) edge();
    else if (isCell) flush();
    if (tag === "h1" || tag === "h2" || tag === "h3") heading = false;
  };
  // Shapes of a drawing that is large enough to be more than an icon can be clicked.
  const livesIn = (svg) => {
    const box = svg.getBoundingClientRect();
    return box.width >= 48 && box.height >= 48;
  };
  const inside = (el, tag, style, shown, up, down) => {
    if (isFrame(el)) {
      if (shown) frame(el, up);
      return;
    }
    if (tag === "label" && shown) {
      const rest = label(el, up);
      if (rest === "done") return;
      if (rest === "mute") down.mute = true;
    }
    const role = roleOf(el, style, up);
    if (role && shown && !(tag === "label" && down.mute)) {
      if (number(el, role, style, up, down)) return;
    } else if (role && isField(el)) return;
    if (tag === "img") {
      const alt = shown && !up.mute ? clean(el.getAttribute("alt") ?? "", MAX_TEXT) : "";
      if (alt) text += ` (image: ${alt}) `;
    } else if (tag === "details" && !el.open) {
      const first = Array.from(el.children).find((child) => child.localName === "summary");
      if (first) visit(first, down);
    } else if (style.display === "table-row" && !el.querySelector("table,ul,ol,dl,h1,h2,h3,h4,h5,h6")) {
      lineRow(el, down);
    } else visitAll(el, down);
  };

  const look = () => {
    listen();
    prune();
    lines = [];
    line = [];
    text = "";
    nodes = letters = hits = row = 0;
    heading = full = false;
    bounds = new Map();
    const top = document.body ?? document.documentElement;
    if (top) {
      visit(top, { dx: 0, dy: 0, mute: false, cursor: "", svg: false, depth: 0, shown: true });
      heading = false;
      row = 0;
      endLine();
    }
    if (full) lines.push(["(the page goes on: it is too large to be shown in full)"]);
    return JSON.stringify([location.href, clean(document.title, 200), lines]);
  };

  const world = { look, listen, heard, elements, idOf, nameOf, roleOf, nativeRole, ownName, wordsOf, clean, isField,
    isFrame, editable, parentOf, shift, solid, boxOf, partsOf, hitAt, within, relation, clipped, isWhole,
    last: () => last };
  Object.defineProperty(globalThis, key, { value: world });
  listen();
}
