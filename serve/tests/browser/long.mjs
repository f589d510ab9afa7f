// Measures the dashboard: beside 10,000,000 messages, and for an hour on a busy queue.
//
// usage: node long.mjs [--only big,busy] [--messages N] [--queues N] [--minutes N] [--strict] [--json]
//   --messages N, --queues N   of `big`: scheduled messages of one queue, and small queues beside it
//   --minutes N                of `busy`
//   --strict                   goals that depend on the machine fail the run, too
//   --json                     prints JSON instead of the table
// It needs DUEQ_PROGRAM, a release build: `make proof NAME=browser-long` sets it.
import { parseArgs } from "node:util";
import { big } from "./long/big.mjs";
import { busy } from "./long/busy.mjs";
import { Report } from "./long/report.mjs";

const SCENARIOS = { big, busy };

const { values } = parseArgs({
  options: {
    only: { type: "string", default: Object.keys(SCENARIOS).join() },
    messages: { type: "string", default: "10000000" },
    queues: { type: "string", default: "999" },
    minutes: { type: "string", default: "60" },
    strict: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
const number = (name, least) => {
  const parsed = Number(values[name]);
  if (!Number.isInteger(parsed) || parsed < least) throw new Error(`--${name} ${values[name]}: it is a whole number from ${least} on`);
  return parsed;
};
// With fewer messages some bars that the run follows would be empty.
const wanted = { messages: number("messages", 100_000), queues: number("queues", 2), minutes: number("minutes", 1) };
const names = values.only.split(",");
for (const name of names) if (!SCENARIOS[name]) throw new Error(`--only ${name}: it is one of ${Object.keys(SCENARIOS)}`);

const report = new Report();
try {
  for (const name of names) await SCENARIOS[name](report.of(name), wanted);
} finally {
  // After a failure, of what was measured before it.
  console.log(values.json ? JSON.stringify(report.rows, null, 2) : report.table());
}
const missed = report.missed(values.strict);
if (missed.length) {
  console.error(`not met: ${missed.join("; ")}`);
  process.exitCode = 1;
}
