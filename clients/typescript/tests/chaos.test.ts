// Processes of workers that are killed while the server is killed and its connections are cut.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../src/index.js";
import { RedisServer, until } from "./servers_for_tests.js";

// One write for each run, which a kill does not tear apart.
const WORKER = `
import { openSync, writeSync } from "node:fs";
import { connect } from "./src/index.js";
const { ioredis } = await import("./src/ioredis.js");
const [, url, file, driver] = process.argv;
const log = openSync(file, "a");
await connect(url, driver === "ioredis" ? { driver: ioredis } : {}).worker().queue("q", async (delivery) => {
  writeSync(log, \`\${delivery.id} \${delivery.attempt} \${Number(Date.now() < delivery.dueMs)}\\n\`);
  await new Promise((resolve) => setTimeout(resolve, 10));
}, { concurrency: 8, lease: 2_000 }).run();
`;
const SECONDS = 12;
/** The faults, one a second; the kills of workers go round. */
const FAULTS = ["worker", "cut", "worker", "server", "worker", "worker", "cut", "server", "worker", "worker"] as const;

test("kills lose nothing and double nothing without a lapsed lease", { timeout: 120_000 }, async () => {
  const server = await RedisServer.start();
  const folder = mkdtempSync(path.join(tmpdir(), "dueq-ts-"));
  const file = path.join(folder, "runs");
  writeFileSync(file, "");
  const cwd = new URL("..", import.meta.url);
  const start = (at: number): ChildProcess => {
    const words = ["--input-type=module", "-e", WORKER, server.url, file, at === 2 ? "ioredis" : "redis"];
    return spawn(process.execPath, words, { cwd, stdio: "ignore" });
  };
  const workers = [0, 1, 2].map(start);
  after(() => {
    for (const worker of workers) worker.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  });
  const client = connect(server.url);
  const queue = client.queue("q");
  const end = performance.now() + SECONDS * 1_000;
  let [pushed, faults, killed] = [0, 0, 0];
  for (let nextFault = performance.now() + 2_000; performance.now() < end; await sleep(40)) {
    const ids = Array.from({ length: 10 }, (_, n) => `m${pushed + n}`);
    await Promise.all(ids.map((id) => queue.push("", { id, delay: 200 })));
    pushed += 10;
    if (performance.now() < nextFault) continue;
    nextFault = performance.now() + 1_000;
    const fault = FAULTS[faults % FAULTS.length];
    faults += 1;
    if (fault === "worker") {
      const at = killed % 3;
      const ended = once(workers[at], "exit");
      workers[at].kill("SIGKILL");
      await ended;
      workers[at] = start(at);
      killed += 1;
    } else if (fault === "server") {
      await server.kill();
      await server.start();
    } else {
      await server.command("CLIENT", "KILL", "TYPE", "normal");
    }
  }
  assert(faults >= 5 && killed >= 3, `${faults} faults`);
  // What a killed worker had comes back when its lease has run out.
  await until(async () => (await server.meta("q", "acked")) === pushed, 60_000);
  assert.equal(await server.meta("q", "died"), 0);
  await client.close();
  const runs = readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => line.split(" "));
  assert.equal(new Set(runs.map(([id]) => id)).size, pushed);
  assert.deepEqual(
    runs.filter(([, , early]) => early === "1"),
    [],
  );
  // A second run of an id has another attempt: a crash was charged, because a lease had run out.
  assert.equal(new Set(runs.map(([id, attempt]) => `${id} ${attempt}`)).size, runs.length);
});
