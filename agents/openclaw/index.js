/**
 * Tells a clawrl_gym gateway what OpenClaw knows and the OpenAI API has no field for: the session of
 * each model call, whether it is a turn of the conversation or an errand, and that a session has ended.
 *
 * Only calls to the provider "clawrl" are touched; nothing is added to those of any other provider.
 */
import { setImmediate } from "node:timers/promises";

import { Calls } from "./calls.js";

const PROVIDER = "clawrl";
const TIMEOUT_MS = 2000;

/**
 * OpenClaw loads a plugin more than once in a process: hooks may reach one copy and calls be wrapped by
 * another. They share what they know.
 */
const calls = (globalThis[Symbol.for("clawrl.calls")] ??= new Calls());

/** After these the conversation continues: in the next process, or with a shorter history. */
const GOES_ON = new Set(["shutdown", "restart", "compaction"]);

export default {
  id: PROVIDER,
  name: PROVIDER,
  description: "Session, turn kind and session end for a clawrl_gym gateway.",

  register(api) {
    api.on("model_call_started", (event, ctx) => {
      if (event.provider === PROVIDER) calls.started(ctx.trace, event);
    });
    api.on("heartbeat_prompt_contribution", (_event, ctx) => calls.heartbeat(ctx.trace));
    api.on("session_end", async ({ sessionId, reason }) => {
      if (!GOES_ON.has(reason) && calls.leave(sessionId)) await end(api, sessionId);
    });
    api.registerProvider({
      id: PROVIDER,
      label: PROVIDER,
      auth: [],
      wrapStreamFn: withHeaders,
      wrapSimpleCompletionStreamFn: withHeaders,
    });
  },
};

function withHeaders({ streamFn }) {
  if (!streamFn) return undefined;
  return async (model, context, options) => {
    // model_call_started is announced together with the call; by the next turn of the loop it has been heard.
    await setImmediate();
    const { sessionId, headers } = options ?? {};
    const added = calls.headers({ sessionId, traceparent: headers?.traceparent });
    return streamFn(model, context, { ...options, headers: { ...headers, ...added } });
  };
}

/** Tell the gateway that the session has ended. It finds out by itself too, only later: never an error. */
async function end(api, sessionId) {
  try {
    const { baseUrl } = api.config.models.providers[PROVIDER];
    const auth = await api.runtime.modelAuth.resolveApiKeyForProvider({
      provider: PROVIDER,
      cfg: api.config,
    });
    const url = `${baseUrl.replace(/\/+$/, "")}/sessions/${encodeURIComponent(sessionId)}/end`;
    const answer = await fetch(url, {
      method: "POST",
      headers: { Authorization: `Bearer ${auth.apiKey}`, "Content-Type": "application/json" },
      body: "{}",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  } catch (error) {
    api.logger.warn(`session ${sessionId}: the gateway was not told of its end: ${error.message}`);
  }
}
