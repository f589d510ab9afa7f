// Handlers that take many messages at a time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Consumer } from "../src/consumer.js";
import { inBatches, Message, Retry, Settlement, type Delivery } from "../src/index.js";
import { RedisServer, until } from "./servers_for_tests.js";
import { running, withQueue } from "./workers_for_tests.js";

test("a batch is one call and each message is settled for itself", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const sizes: number[] = [];
    const ways: Record<string, Settlement> = { bury: Settlement.bury("no"), snooze: Settlement.snooze(60_000) };
    const handle = (batch: Delivery[]) => {
      sizes.push(batch.length);
      return batch.filter(({ id }) => id !== "z").map(({ id }) => ways[id] ?? Settlement.ack());
    };
    await queue.pushMany(["bury", "snooze", ..."abcdefg", "z"].map((id) => new Message("", { id, delay: 200 })));
    const options = { concurrency: 2, retry: Retry.fixed(60_000) };
    await running(client.worker().queue(queue, inBatches(10, 100, handle), options), () =>
      until(async () => (await server.meta("q", "acked")) === 7),
    );
    assert.deepEqual(sizes, [10]);
    const found = await Promise.all(["bury", "snooze", "z"].map((id) => queue.get(id)));
    assert.deepEqual(
      found.map((one) => [one?.state, one?.failures]),
      [
        ["dead", 0],
        ["scheduled", 0],
        ["scheduled", 1],
      ],
    );
    assert.match(String(found[2]?.error), /the handler of the batch returned 9 settlements/);
  });
});

test("a failure or a time limit retries all, and a batch of one is closed by time", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const sizes: number[] = [];
    const handle = async (batch: Delivery[]) => {
      sizes.push(batch.length);
      if (sizes.length === 1) throw new RangeError("no index");
      if (sizes.length === 2) await sleep(60_000, undefined, { signal: batch[0].signal });
    };
    await queue.pushMany([..."abc"].map((id) => new Message("", { id })));
    const worker = client.worker().queue(queue, inBatches(3, 50, handle), { retry: Retry.fixed(200), timeLimit: 300 });
    await running(worker, async () => {
      await until(async () => (await server.meta("q", "acked")) === 3);
      assert((await server.meta("q", "retried")) > 3);
      await queue.push("", { id: "alone" });
      await until(async () => (await server.meta("q", "acked")) === 4);
    });
    assert.deepEqual([sizes[0], sizes.at(-1)], [3, 1]);
  });
});

test("no more batches run than the concurrency, and a stop closes the open one", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    let [now, most] = [0, 0];
    const handle = async () => {
      most = Math.max(most, (now += 1));
      await sleep(50);
      now -= 1;
    };
    await queue.pushMany(Array.from({ length: 40 }, () => new Message("")));
    const worker = client.worker().queue(queue, inBatches(4, 10_000, handle), { concurrency: 2 });
    const [consumer] = Reflect.get(worker, "consumers") as Consumer[];
    await running(worker, async () => {
      await until(async () => (await server.meta("q", "acked")) === 40);
      await queue.push("", { id: "last" });
      await until(() => consumer.running === 1); // it waits in the open batch
    });
    assert.equal(most, 2);
    assert.equal(await server.meta("q", "acked"), 41);
  });
});

test("a message that crashed its worker comes alone", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const batches: string[] = [];
    const handle = (batch: Delivery[]) =>
      void batches.push(
        batch
          .map(({ id }) => id)
          .sort()
          .join(),
      );
    await queue.push("", { id: "crashed" });
    await queue.router.partition("-").call("claim", [1, Buffer.alloc(16, "t"), 1]);
    await queue.pushMany([..."ab"].map((id) => new Message("", { id, delay: 300 })));
    await running(client.worker().queue(queue, inBatches(3, 200, handle)), () =>
      until(async () => (await server.meta("q", "acked")) === 3),
    );
    assert.deepEqual(batches.sort(), ["a,b", "crashed"]);
    assert.throws(() => inBatches(0, 1, handle), /at least 1/);
    assert.throws(() => client.worker().queue("q", inBatches(2, 11_000, handle)), /a third of the lease/);
  });
});
