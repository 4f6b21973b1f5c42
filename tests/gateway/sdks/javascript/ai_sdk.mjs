// Vercel AI SDK with its default providers, and with the one for servers like OpenAI's.
import { anthropic } from "@ai-sdk/anthropic";
import { openai } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
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

const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey } = process.env;
const model = {
  responses: () => openai(MODEL),
  messages: () => anthropic(MODEL),
  chat: () => createOpenAICompatible({ name: "gateway", baseURL, apiKey })(MODEL),
}[process.argv[2]]();

async function callTools(prompt, generate) {
  const { calls, add } = adder();
  const description = "Add two numbers.";
  const tools = { add: tool({ description, inputSchema: Sum, execute: add }) };
  const result = await generate({ model, prompt, tools, stopWhen: isStepCount(5) });
  return { text: await (await result.finalStep).text, calls };
}

await play({
  async chat() {
    return { text: (await generateText({ model, prompt: HELLO })).text };
  },
  async stream() {
    const pieces = [];
    for await (const text of streamText({ model, prompt: COUNT }).textStream) pieces.push(text);
    return { pieces };
  },
  tools: () => callTools(SUM, generateText),
  streamed_tools: () => callTools(STREAMED_SUM, streamText),
  async structured() {
    const output = Output.object({ schema: Place });
    return { object: (await generateText({ model, prompt: PLACE, output })).output };
  },
});
