/**
 * Calls of OpenClaw's gateway, as its own command line makes them, in one process: a line of JSON
 * each, `{method, params, final}`, answered by `{result}` or `{error}`.
 */
import { createInterface } from "node:readline";
import { callGatewayFromCli } from "openclaw/plugin-sdk/gateway-runtime";

for await (const line of createInterface({ input: process.stdin })) {
  const { method, params, final } = JSON.parse(line);
  let answer;
  try {
    const extra = { expectFinal: final, scopes: ["operator.admin"] };
    const options = { json: true, timeout: "120000" };
    answer = { result: await callGatewayFromCli(method, options, params, extra) };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
