// Runs in the page's own world before its scripts: tells snapshot.js which elements listen to the mouse,
// with an event whose related target is the element, and which snapshot.js prevents. What it did not
// hear, because a window's first document begins before we see the window, is kept until it asks.
// A page that imitates it gains nothing.
(hint) => {
  "use strict";
  const WANTED = { __proto__: null, click: 1, dblclick: 1, contextmenu: 1, mousedown: 1, mouseup: 1,
    pointerdown: 1, pointerup: 1, mouseenter: 1, mouseover: 1, touchstart: 1, dragstart: 1 };
  const HANDLES = ["onclick", "onmousedown", "onmouseup", "onpointerdown", "ondblclick", "onmouseover"];
  const { apply, defineProperty, getOwnPropertyDescriptor } = Reflect;
  const Mouse = MouseEvent;
  const { addEventListener: add, dispatchEvent: send } = EventTarget.prototype;
  const me = globalThis;
  const type = getOwnPropertyDescriptor(Node.prototype, "nodeType").get;
  let unheard = [];
  const tell = (el) => {
    try {
      if (el === me || apply(type, el, []) !== 1) return;
      if (!apply(send, me, [new Mouse(hint, { relatedTarget: el, cancelable: true })])) return;
      unheard[unheard.length] = el;
      expectQuestion(); // document.open() takes every listener from the window
    } catch { /* not an element */ }
  };
  const answer = () => {
    const elements = unheard;
    unheard = [];
    for (let i = 0; i < elements.length; i++) tell(elements[i]);
  };
  const expectQuestion = () => apply(add, me, [hint + "?", answer, true]);
  const wrapped = {
    addEventListener(name) {
      if (WANTED[name] === 1) tell(this);
      return apply(add, this ?? me, arguments);
    },
  };
  EventTarget.prototype.addEventListener = wrapped.addEventListener;
  for (const made of [HTMLElement.prototype, SVGElement.prototype]) {
    for (const name of HANDLES) {
      const own = getOwnPropertyDescriptor(made, name);
      if (!own?.set) continue;
      const set = own.set;
      own.set = function (handler) {
        if (typeof handler === "function") tell(this);
        apply(set, this, [handler]);
      };
      defineProperty(made, name, own);
    }
  }
}
