// Calls that wait until replicas or disks have confirmed them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Durability, Message, type DueqError } from "../src/index.js";
import { Proxy, RedisServer } from "./servers_for_tests.js";
import { withQueue } from "./workers_for_tests.js";

test("a change that no replica has is unconfirmed", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    const safe = queue.durability(Durability.replicated(1, 20));
    assert.equal(await safe.cancel("a"), "absent"); // a queue that does not exist has nothing to lose
    // The same call again waits again.
    for (let count = 0; count < 2; count += 1) {
      await assert.rejects(safe.push("", { id: "a", delay: 60_000 }), (error: DueqError) => {
        assert.deepEqual([error.kind, error.applied, error.id, error.retryable], ["unconfirmed", "yes", "a", true]);
        assert.match(error.message, /only 0 of 1 replicas/);
        return true;
      });
    }
    const many = await safe.pushMany(["b", "c"].map((id) => new Message("", { id, delay: 60_000 })));
    assert.deepEqual(
      many.map((one) => "kind" in one && one.kind),
      ["unconfirmed", "unconfirmed"],
    );
    await assert.rejects(safe.runNow("b"), /a failover may undo it/);
    await assert.rejects(safe.reschedule("c", { delay: 1_000 }), /a failover may undo it/);
    await assert.rejects(safe.cancel("a"), /a failover may undo it/);
    assert.equal(await queue.get("a"), null);
    assert.equal(await safe.cancel("none"), "absent");
  });
});

test("a change is confirmed by replicas and disks", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  const replica = await server.replica();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, async (queue) => {
    const safe = queue.durability(Durability.replicated(1, 10_000));
    assert((await safe.push("", { id: "a", delay: 60_000 })).created);
    assert.equal(await replica.command("HEXISTS", "dueq:{q}:messages", "a"), 1);
    // Redis 7.2
    if ((await server.command("COMMAND", "LIST")).includes("waitaof")) {
      const both = queue.durability(Durability.fsynced({ local: true, replicas: 1, timeout: 10_000 }));
      assert((await both.push("", { id: "b", delay: 60_000 })).created);
    }
    proxy.lose("WAIT\r\n");
    // The wait failed, so the call is made again: the message is there, and confirmed now.
    assert.equal((await safe.push("", { id: "c", delay: 60_000 })).outcome, "exists");
  });
});

test("a server that cannot wait is refused before any change", async () => {
  const server = await RedisServer.start();
  await server.command("CONFIG", "SET", "appendonly", "no");
  await withQueue(server.url, async (queue) => {
    const safe = queue.durability(Durability.fsynced({ local: true, timeout: 1_000 }));
    await assert.rejects(safe.push(""), (error: DueqError) => {
      assert.deepEqual([error.kind, error.applied], ["unsupported", "no"]);
      assert.match(error.message, /is not fit: .*(CONFIG SET appendonly yes|needs WAITAOF)/);
      return true;
    });
    assert.equal(await server.command("DBSIZE"), 0);
  });
  assert.throws(() => Durability.replicated(0, 1), /waits for nothing/);
  assert.throws(() => Durability.replicated(1, 60_001), /1 to 60000/);
});
