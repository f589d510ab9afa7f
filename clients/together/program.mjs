// usage: program.mjs push QUEUE FILE | program.mjs work QUEUE     (REDIS_URL names the server)
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../typescript/dist/src/index.js";

const [role, name, file] = process.argv.slice(2);
const client = connect(process.env.REDIS_URL);
const queue = client.queue(name);

async function push() {
  const lines = readFileSync(file, "utf8").trimEnd().split("\n");
  while (lines.length) {
    const pushes = lines.splice(0, 500).map((text) => {
      const line = JSON.parse(text);
      const id = Buffer.from(line.id_base64, "base64");
      return queue.push(Buffer.from(line.payload_base64, "base64"), { id, due: Number(line.at) });
    });
    for (const receipt of await Promise.all(pushes)) assert(receipt.created, JSON.stringify(receipt));
  }
}

async function record(delivery) {
  const hash = createHash("sha1").update(delivery.payload).digest("hex");
  // One write for each run, which a kill does not tear apart.
  writeSync(1, `${Date.now()} ${delivery.idBytes.toString("hex")} ${delivery.attempt} ${hash}\n`);
  await sleep(20);
}

if (role === "push") await push();
else
  await client
    .worker()
    .queue(queue, record, { concurrency: 32, lease: Number(process.env.LEASE_MS) })
    .run();
await client.close();
