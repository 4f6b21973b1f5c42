/**
 * As much of OpenClaw as the plugin meets: it loads the plugin twice, as OpenClaw does, tells hooks to one
 * copy and wraps calls with the other. Reads steps from standard input, writes what came of them.
 *
 *   {"call": "stream" | "single", "provider": P, "options": {…}, "started": {"event": {…}, "trace": {…}}}
 *   {"hook": NAME, "event": {…}, "trace": {…}}
 */
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const [, , plugin, configText] = process.argv;
const config = JSON.parse(configText);
const warnings = [];

async function load(copy) {
  const entry = (await import(`${pathToFileURL(plugin).href}?${copy}`)).default;
  const hooks = new Map();
  const providers = new Map();
  entry.register({
    config,
    logger: { warn: (message) => warnings.push(message) },
    on: (name, handler) => hooks.set(name, handler),
    registerProvider: (provider) => providers.set(provider.id, provider),
    runtime: {
      modelAuth: {
        resolveApiKeyForProvider: async ({ provider, cfg }) => cfg.models.providers[provider],
      },
    },
  });
  return { hooks, providers };
}

const told = await load("told");
const wrapping = await load("wrapping");

function tell(name, event = {}, trace = undefined) {
  return told.hooks.get(name)?.(event, { trace });
}

async function call({ call: kind, provider, options, started }) {
  let sent;
  const streamFn = (_model, _context, given) => {
    sent = given;
    return "reply";
  };
  const wrapper = kind === "stream" ? "wrapStreamFn" : "wrapSimpleCompletionStreamFn";
  const wrapped = wrapping.providers.get(provider)?.[wrapper]?.({ streamFn }) ?? streamFn;
  const reply = wrapped({}, {}, options);
  if (started) queueMicrotask(() => tell("model_call_started", started.event, started.trace));
  return { reply: await reply, headers: sent.headers ?? {}, options: Object.keys(sent) };
}

const results = [];
for (const step of JSON.parse(await text(process.stdin))) {
  results.push("call" in step ? await call(step) : await tell(step.hook, step.event, step.trace));
}
process.stdout.write(JSON.stringify({ results: results.map((r) => r ?? null), warnings }));
