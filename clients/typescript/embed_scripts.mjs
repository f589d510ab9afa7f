// Writes src/scripts.ts: the scripts of lua/dist that this package calls, each with its SHA-1.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const VERBS = `
  ack ack_push again amend arrive beat bury cancel claim depart extend get held promote push reap release remap requeue
  reschedule retry run_now schedule schedules snooze throttle upsert
`
  .trim()
  .split(/\s+/);

const target = new URL("src/scripts.ts", import.meta.url);
const lines = VERBS.map((verb) => {
  const text = readFileSync(new URL(`../../lua/dist/${verb}.lua`, import.meta.url), "utf8");
  const sha = createHash("sha1").update(text).digest("hex");
  return `  ${verb}: { sha: ${JSON.stringify(sha)}, text: ${JSON.stringify(text)} },`;
});
const written = [
  "// Written by embed_scripts.mjs from lua/dist.",
  `export type Verb = ${VERBS.map((verb) => JSON.stringify(verb)).join(" | ")};`,
  "export const SCRIPTS: Readonly<Record<Verb, { readonly sha: string; readonly text: string }>> = {",
  ...lines,
  "};",
  "",
].join("\n");
if (!existsSync(target) || readFileSync(target, "utf8") !== written) writeFileSync(target, written);
