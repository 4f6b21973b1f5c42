// The five scenarios that each script has a library play: what is asked, and what is printed.
// A script runs with the library's own settings: addresses and keys come from the environment.
import { z } from "zod";

export const MODEL = "policy";
export const HELLO = "Say hello.";
export const COUNT = "Count to three.";
export const SUM = "What is 2 plus 3, and 4 plus 5?";
export const STREAMED_SUM = "Add 2 to 3, and 4 to 5.";
export const PLACE = "Describe the city of Bern.";
export const Sum = z.object({ a: z.number().int(), b: z.number().int() });
export const SUM_SCHEMA = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};
export const Place = z.object({
  name: z.string(),
  people: z.number().int(),
  languages: z.array(z.string()),
});

// The tool: it adds two numbers and keeps what it was called with.
export function adder() {
  const calls = [];
  const add = ({ a, b }) => (calls.push({ a, b }), a + b);
  return { calls, add };
}

// Print one line of JSON for each scenario; one that fails says how, and the next goes on.
export async function play(client) {
  for (const scenario of ["chat", "stream", "tools", "streamed_tools", "structured"]) {
    let result;
    try {
      result = await client[scenario]();
    } catch (error) {
      const body = error.responseBody ?? "";
      result = { error: `${error.stack ?? error} ${error.cause ?? ""} ${body}`.slice(0, 1500) };
    }
    console.log(JSON.stringify({ scenario, ...result }));
  }
}
