/** Everyday use of the official JavaScript client; what it got is written as JSON. */
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 120_000 });
const model = "policy";
const messages = [{ role: "user", content: "Read the file garden.txt" }];
const tools = [
  {
    type: "function",
    function: {
      name: "read",
      description: "Read a file",
      parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
    },
  },
];

const models = (await client.models.list()).data.map((entry) => entry.id);
const asked = { model, messages, tools, max_completion_tokens: 48, temperature: 0 };
const plain = await client.chat.completions.create(asked);

const chunks = [];
const stream = await client.chat.completions.create({
  ...asked,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) chunks.push(chunk);

const gathered = await client.chat.completions.stream(asked).finalChatCompletion();
const text = await client.completions.create({ model, prompt: "One, two,", max_tokens: 4 });

let refusal;
try {
  await client.chat.completions.create({ model: "no-such-model", messages });
} catch (error) {
  refusal = { kind: error.constructor.name, status: error.status, code: error.code };
}

process.stdout.write(JSON.stringify({ models, plain, chunks, gathered, text, refusal }));
