// The official `@anthropic-ai/sdk` package: Messages.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import {
  COUNT,
  HELLO,
  MODEL,
  PLACE,
  Place,
  STREAMED_SUM,
  SUM,
  SUM_SCHEMA,
  adder,
  play,
} from "./scenarios.mjs";

const { messages: api } = new Anthropic();
const said = (content) => ({
  model: MODEL,
  max_tokens: 256,
  messages: [{ role: "user", content }],
});
const textOf = (message) => message.content.map((block) => block.text ?? "").join("");

async function callTools(question, create) {
  const { calls, add } = adder();
  const asked = { ...said(question), tools: [{ name: "add", input_schema: SUM_SCHEMA }] };
  const { content } = await create(asked);
  const results = content
    .filter((block) => block.type === "tool_use")
    .map(({ id, input }) => ({
      type: "tool_result",
      tool_use_id: id,
      content: String(add(input)),
    }));
  asked.messages.push({ role: "assistant", content }, { role: "user", content: results });
  return { text: textOf(await create(asked)), calls };
}

await play({
  async chat() {
    return { text: textOf(await api.create(said(HELLO))) };
  },
  async stream() {
    const pieces = [];
    await api.stream(said(COUNT)).on("text", (text) => pieces.push(text)).finalMessage();
    return { pieces };
  },
  tools: () => callTools(SUM, (asked) => api.create(asked)),
  streamed_tools: () => callTools(STREAMED_SUM, (asked) => api.stream(asked).finalMessage()),
  async structured() {
    const output_config = { format: zodOutputFormat(Place) };
    return { object: (await api.parse({ ...said(PLACE), output_config })).parsed_output };
  },
});
