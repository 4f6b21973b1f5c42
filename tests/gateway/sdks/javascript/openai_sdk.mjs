// The official `openai` package: chat completions and Responses.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
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

const openai = new OpenAI();
const model = MODEL;
const said = (content) => [{ role: "user", content }];

async function runTools(question, stream) {
  const { calls, add } = adder();
  const tool = {
    type: "function",
    function: {
      name: "add",
      description: "Add two numbers.",
      parameters: SUM_SCHEMA,
      parse: JSON.parse,
      function: add,
    },
  };
  const asked = { model, messages: said(question), tools: [tool], stream };
  return { text: await openai.chat.completions.runTools(asked).finalContent(), calls };
}

const chat = {
  async chat() {
    const reply = await openai.chat.completions.create({ model, messages: said(HELLO) });
    return { text: reply.choices[0].message.content };
  },
  async stream() {
    const pieces = [];
    const stream = openai.chat.completions.stream({ model, messages: said(COUNT) });
    stream.on("content", (delta) => pieces.push(delta));
    await stream.finalChatCompletion();
    return { pieces };
  },
  tools: () => runTools(SUM, false),
  streamed_tools: () => runTools(STREAMED_SUM, true),
  async structured() {
    const reply = await openai.chat.completions.parse({
      model,
      messages: said(PLACE),
      response_format: zodResponseFormat(Place, "place"),
    });
    return { object: reply.choices[0].message.parsed };
  },
};

async function callTools(question, respond) {
  const { calls, add } = adder();
  const tools = [{ type: "function", name: "add", parameters: SUM_SCHEMA, strict: true }];
  const input = said(question);
  const calling = await respond({ model, input, tools });
  input.push(...calling.output);
  for (const item of calling.output.filter((item) => item.type === "function_call")) {
    const output = String(add(JSON.parse(item.arguments)));
    input.push({ type: "function_call_output", call_id: item.call_id, output });
  }
  return { text: (await respond({ model, input, tools })).output_text, calls };
}

const responses = {
  async chat() {
    return { text: (await openai.responses.create({ model, input: HELLO })).output_text };
  },
  async stream() {
    const pieces = [];
    const stream = openai.responses.stream({ model, input: COUNT });
    stream.on("response.output_text.delta", (event) => pieces.push(event.delta));
    await stream.finalResponse();
    return { pieces };
  },
  tools: () => callTools(SUM, (asked) => openai.responses.create(asked)),
  streamed_tools: () =>
    callTools(STREAMED_SUM, (asked) => openai.responses.stream(asked).finalResponse()),
  async structured() {
    const format = zodTextFormat(Place, "place");
    const reply = await openai.responses.parse({ model, input: PLACE, text: { format } });
    return { object: reply.output_parsed };
  },
};

await play({ chat, responses }[process.argv[2]]);
