// A master that Sentinels replace.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { createClient } from "redis";
import { connect, Message, type Delivery } from "../src/index.js";
import { ioredis } from "../src/ioredis.js";
import { freePort, PROGRAM, RedisServer, until } from "./servers_for_tests.js";
import { Counter, running } from "./workers_for_tests.js";

async function startSentinel(master: RedisServer): Promise<number> {
  const [folder, port] = [mkdtempSync(path.join(tmpdir(), "dueq-ts-")), await freePort()];
  const file = path.join(folder, "conf");
  writeFileSync(
    file,
    `port ${port}\nsentinel monitor orders 127.0.0.1 ${master.port} 1\n` +
      "sentinel down-after-milliseconds orders 500\nsentinel failover-timeout orders 3000\n",
  );
  const sentinel = spawn(PROGRAM, [file, "--sentinel"], { stdio: "ignore" });
  after(() => {
    sentinel.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  return port;
}

async function knowsReplica(port: number): Promise<boolean> {
  const watch = createClient({ RESP: 2, socket: { port, reconnectStrategy: false } });
  watch.on("error", () => {});
  try {
    await watch.connect();
    return (await watch.sendCommand<unknown[]>(["SENTINEL", "REPLICAS", "orders"])).length === 1;
  } catch {
    return false; // it is starting
  } finally {
    if (watch.isOpen) watch.destroy();
  }
}

for (const [name, driver] of Object.entries({ "node-redis": undefined, ioredis })) {
  test(`${name}: calls and workers follow a failover`, { timeout: 60_000 }, async () => {
    const server = await RedisServer.start();
    await server.replica();
    const port = await startSentinel(server);
    await until(() => knowsReplica(port));
    const runs = new Counter();
    const client = connect(`redis+sentinel://127.0.0.1:1,127.0.0.1:${port}/orders`, { driver, log: () => {} });
    const queue = client.queue("q");
    const handle = (delivery: Delivery) => void runs.add(delivery.id);
    await running(client.worker().queue(queue, handle), async () => {
      await queue.push("", { id: "before" });
      await until(() => runs.count("before") === 1);
      // Pushed and replicated before the kill: no failover loses them.
      await queue.pushMany(
        Array.from({ length: 100 }, (_, n) => new Message("", { id: `m${n}`, delay: 500 + n * 20 })),
      );
      await server.command("SET", "written", "after them"); // WAIT counts the writes of its own connection
      assert.equal(await server.command("WAIT", 1, 10_000), 1);
      await server.kill();
      await queue.push("", { id: "after", delay: 100 });
      await until(() => runs.size === 102).catch(() => assert.fail(`${runs.size} of 102 messages were handled`));
    });
    await client.close();
  });
}
