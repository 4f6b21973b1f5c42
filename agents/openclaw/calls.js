/**
 * Reports of OpenClaw's hooks about the running model calls. Bookkeeping only: no I/O.
 *
 * A call is known by its trace: `traceparent` is "00-TRACE-SPAN-01", where a span is one model call and
 * a trace is everything that one message, heartbeat or job set off.
 */

/** Calls, traces and sessions that are remembered, each; the oldest is forgotten first. */
const MOST = 1000;

/** Third field of the session keys in which OpenClaw runs errands of its own, not conversations. */
const ERRANDS = new Set([
  "boot",
  "cron",
  "helper",
  "hook",
  "internal-session-effects",
  "setup-inference",
  "subagent",
  "update-repair",
]);

/** The ids that the gateway takes; OpenClaw lets a user choose others, which it finds by itself. */
const SESSION_ID = /^[A-Za-z0-9][A-Za-z0-9._:~@+=-]{0,199}$/;

/** Is this a session key of a conversation? "agent:main:telegram:group:7" is, "agent:main:cron:7" is not. */
export function isConversation(sessionKey) {
  const [, , place, ...rest] = sessionKey.split(":");
  return !ERRANDS.has(place) && !rest.includes("active-memory") && rest.at(-1) !== "heartbeat";
}

export class Calls {
  #calls = new Map();
  #heartbeats = new Map();
  #sessions = new Map();

  /** A model call begins: its session's id and key, under its span. */
  started(trace, { sessionId, sessionKey }) {
    if (trace?.spanId) remember(this.#calls, trace.spanId, { sessionId, sessionKey });
  }

  /** The trace is a heartbeat's. */
  heartbeat(trace) {
    if (trace?.traceId) remember(this.#heartbeats, trace.traceId, true);
  }

  /**
   * The headers of a call. `sessionId` is what OpenClaw gave to the call itself: only the agent's own
   * turns have one; summaries, titles and other single completions have none.
   */
  headers({ sessionId, traceparent }) {
    const [, traceId, spanId] = (traceparent ?? "").split("-");
    const call = this.#calls.get(spanId);
    this.#calls.delete(spanId);
    const main =
      Boolean(sessionId) &&
      !this.#heartbeats.has(traceId) &&
      isConversation(call?.sessionKey ?? "");
    const headers = { "X-Turn-Type": main ? "main" : "side" };
    const id = call?.sessionId ?? sessionId;
    if (id && SESSION_ID.test(id)) {
      remember(this.#sessions, id, true);
      headers["X-Session-Id"] = id;
    }
    return headers;
  }

  /** Has the gateway heard of this session? It is forgotten with the answer. */
  leave(sessionId) {
    return this.#sessions.delete(sessionId);
  }
}

function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > MOST) map.delete(map.keys().next().value);
}
