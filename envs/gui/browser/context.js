// Runs before every page's own scripts: a clock that starts at a fixed time and runs, random numbers
// that follow from the task's seed and the address, and an end to endless dialogs and windows.
(clockOffsetMs, seed) => {
  "use strict";
  const RealDate = Date;
  const realNow = RealDate.now;
  const now = () => realNow() + clockOffsetMs;
  const MovedDate = new Proxy(RealDate, {
    construct: (target, given, made) =>
      Reflect.construct(target, given.length ? given : [now()], made),
    apply: () => new RealDate(now()).toString(),
    get: (target, name) => (name === "now" ? now : target[name]),
  });
  RealDate.prototype.constructor = MovedDate;
  Object.defineProperty(globalThis, "Date", { value: MovedDate, writable: true, configurable: true });

  let state = seed >>> 0;
  for (const sign of location.href) state = Math.imul(state ^ sign.codePointAt(0), 0x01000193) >>> 0;
  Math.random = () => {  // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  const MOST = 20, WITHIN_MS = 1000;  // further ones are not shown
  const { apply } = Reflect;
  let first = 0, shown = 0;
  const tooMany = () => {
    const at = realNow();
    if (at - first > WITHIN_MS) [first, shown] = [at, 0];
    return ++shown > MOST;
  };
  const limit = (name, otherwise) => {
    const real = globalThis[name];
    globalThis[name] = { [name](...given) {
      return tooMany() ? otherwise : apply(real, globalThis, given);
    } }[name];
  };
  limit("alert", undefined);
  limit("confirm", false);
  limit("prompt", null);
  limit("open", null);
}
