// Queues of several partitions, on one server while their number changes, and on a cluster.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, DueqError, Message, Settlement, type Delivery } from "../src/index.js";
import { ioredis } from "../src/ioredis.js";
import { RedisServer, ROOT, until } from "./servers_for_tests.js";
import { Counter, running } from "./workers_for_tests.js";

const PROGRAM = process.env.DUEQ_PROGRAM ?? path.join(ROOT, "target/debug/dueq");
const skip = existsSync(PROGRAM) ? false : `${PROGRAM} is missing: cargo build --package dueq-cli`;

/** Changes the partitions as an operator does, while the queue is used. */
function change(url: string, queue: string, count: number): { process: ChildProcess; ended: Promise<void> } {
  const operator = spawn(PROGRAM, ["--redis", url, "partitions", queue, String(count)], { stdio: "pipe" });
  let output = "";
  for (const stream of [operator.stdout, operator.stderr]) stream.on("data", (data) => (output += String(data)));
  const ended = once(operator, "close").then(() => assert.equal(operator.exitCode, 0, output));
  return { process: operator, ended };
}

test("calls find their message while the partitions change", { skip, timeout: 120_000 }, async () => {
  const server = await RedisServer.start();
  const client = connect(server.url);
  const queue = client.queue("q");
  const ids = Array.from({ length: 300 }, (_, n) => `m${n}`);
  await queue.pushMany(ids.map((id) => new Message(id, { id, delay: 3_600_000 })));
  for (const count of [3, 2]) {
    const operator = change(server.url, "q", count);
    let rounds = 0;
    for (; operator.process.exitCode === null; rounds += 1) {
      for (const id of ids.filter((_, n) => n % 30 === 0)) {
        const [again, stored] = await Promise.all([queue.push("other", { id, delay: 60_000 }), queue.get(id)]);
        assert.equal(again.outcome, "exists");
        assert.equal(String(stored?.payload), id);
      }
    }
    await operator.ended;
    assert(rounds > 0);
  }
  assert.equal(queue.router.map?.next.length, 2);
  const cancelled = await Promise.all(ids.map((id) => queue.cancel(id)));
  assert.deepEqual([...new Set(cancelled)], ["cancelled"]);
  const many = await queue.pushMany(ids.map((id) => new Message("", { id, delay: 3_600_000 })));
  assert(many.every((one) => !(one instanceof DueqError) && one.created));
  await client.close();
});

test("a worker follows the map and handles each message once", { skip, timeout: 120_000 }, async () => {
  const server = await RedisServer.start();
  const warnings: string[] = [];
  const client = connect(server.url, { log: (level, text) => void (level !== "info" && warnings.push(text)) });
  const queue = client.queue("q");
  const runs = new Counter();
  const handle = (delivery: Delivery) => {
    runs.add(delivery.id);
    return delivery.id.includes("/") ? undefined : Settlement.ackAnd([new Message("")]);
  };
  await running(client.worker().queue(queue, handle, { concurrency: 8 }), async () => {
    await queue.pushMany(Array.from({ length: 300 }, (_, n) => new Message("", { id: `a${n}`, delay: n * 10 })));
    // These are moved in batches; what is due soon stays where it is.
    await queue.pushMany(Array.from({ length: 100 }, (_, n) => new Message("", { id: `c${n}`, delay: 3_600_000 })));
    const operator = change(server.url, "q", 3);
    let sent = 0;
    for (; operator.process.exitCode === null; sent += 1) {
      await queue.push("", { id: `b${sent}`, delay: 100 });
      await sleep(20);
    }
    await operator.ended;
    await until(() => runs.size === 2 * (300 + sent));
    warnings.length = 0;
    await sleep(4_000); // a leader looks after batches that are on their way, of which there are none
    assert.deepEqual(warnings, []);
  });
  assert.equal(runs.most, 1);
  await client.close();
});

async function startCluster(): Promise<RedisServer[]> {
  const servers = await Promise.all([0, 1, 2].map(() => RedisServer.start("--cluster-enabled", "yes")));
  for (const [number, server] of servers.entries()) {
    const first = number * 5_461;
    await server.command("CLUSTER", "ADDSLOTSRANGE", first, first + 5_460 + Number(number === 2));
    await server.command("CLUSTER", "MEET", "127.0.0.1", servers[0].port);
  }
  for (const server of servers) {
    await until(async () => {
      const state = String(await server.command("CLUSTER", "INFO"));
      return state.includes("cluster_state:ok") && state.includes("known_nodes:3");
    });
  }
  return servers;
}

/** Moves the slot of a queue to another master, key by key. */
async function move(cluster: RedisServer[], queue: string): Promise<void> {
  const slot = Number(await cluster[0].command("CLUSTER", "KEYSLOT", `{${queue}}`));
  const ids = await Promise.all(cluster.map((one) => one.command("CLUSTER", "MYID")));
  const owner = Math.min(Math.floor(slot / 5_461), 2);
  const target = (owner + 1) % 3;
  await cluster[target].command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner]);
  await cluster[owner].command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target]);
  for (;;) {
    const keys: string[] = await cluster[owner].command("CLUSTER", "GETKEYSINSLOT", slot, 100);
    if (!keys.length) break;
    for (const key of keys) {
      await cluster[owner].command("MIGRATE", "127.0.0.1", cluster[target].port, key, 0, 5_000);
    }
  }
  for (const one of cluster) await one.command("CLUSTER", "SETSLOT", slot, "NODE", ids[target]);
}

for (const [name, driver] of Object.entries({ "node-redis": undefined, ioredis })) {
  test(`${name}: a cluster is served also while a slot moves`, { timeout: 60_000 }, async () => {
    const cluster = await startCluster();
    const runs = new Counter();
    const handle = (delivery: Delivery) => void runs.add(delivery.id);
    const urls = {
      named: `redis+cluster://127.0.0.1:${cluster[0].port},127.0.0.1:${cluster[1].port}`,
      recognised: cluster[2].url,
    };
    for (const [kind, url] of Object.entries(urls)) {
      const names = Array.from({ length: 6 }, (_, n) => `${kind}${n}`);
      const client = connect(url, { driver, log: () => {} });
      const worker = client.worker();
      for (const one of names) worker.queue(one, handle);
      await running(worker, async () => {
        for (const one of names) {
          const messages = Array.from({ length: 100 }, (_, n) => new Message("", { id: `${one}:${n}`, delay: n * 20 }));
          await client.queue(one).pushMany(messages);
        }
        await move(cluster, names[0]);
        await client.queue(names[0]).push("", { id: `${kind}:after`, delay: 100 });
        await until(() => runs.count(`${kind}:after`) && runs.size % 601 === 0);
        await until(() => listens(cluster, names[0]));
      });
      await client.close();
    }
    assert.equal(runs.size, 1_202);
    assert.equal(runs.most, 1);
  });
}

/** Whether the notices of a queue are heard at the server that has its slot now. */
async function listens(cluster: RedisServer[], queue: string): Promise<boolean> {
  const channel = `dueq:{${queue}}:notice`;
  const counts = await Promise.all(cluster.map((one) => one.command("PUBSUB", "SHARDNUMSUB", channel).catch(() => [])));
  const slot = Number(await cluster[0].command("CLUSTER", "KEYSLOT", channel));
  const target = (Math.min(Math.floor(slot / 5_461), 2) + 1) % 3;
  return counts[target][1] === 1;
}
