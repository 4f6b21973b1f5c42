// OpenAI Agents SDK in its default mode, which is Responses; its tracing is off.
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import {
  COUNT,
  HELLO,
  MODEL,
  PLACE,
  Place,
  STREAMED_SUM,
  SUM,
  Sum,
  adder,
  play,
} from "./scenarios.mjs";

setTracingDisabled(true);
const agent = (more) =>
  new Agent({ name: "helper", instructions: "You help.", model: MODEL, ...more });

async function runTools(question, stream) {
  const { calls, add } = adder();
  const description = "Add two numbers.";
  const tools = [tool({ name: "add", description, parameters: Sum, execute: add })];
  const result = await run(agent({ tools }), question, { stream });
  if (stream) for await (const _ of result);
  return { text: result.finalOutput, calls };
}

await play({
  async chat() {
    return { text: (await run(agent(), HELLO)).finalOutput };
  },
  async stream() {
    const pieces = [];
    const result = await run(agent(), COUNT, { stream: true });
    for await (const text of result.toTextStream()) pieces.push(text);
    await result.completed;
    return { pieces };
  },
  tools: () => runTools(SUM, false),
  streamed_tools: () => runTools(STREAMED_SUM, true),
  async structured() {
    return { object: (await run(agent({ outputType: Place }), PLACE)).finalOutput };
  },
});
