// Calls of producers against a real server: results, gathering, and replies that are lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, DueqError, Message, type Client, type Queue, type Receipt } from "../src/index.js";
import { ioredis } from "../src/ioredis.js";
import { SCRIPTS } from "../src/scripts.js";
import { Proxy, RedisServer } from "./servers_for_tests.js";

/** Runs a test with a client and its queue `q`. */
async function withQueue(url: string, use: (queue: Queue, client: Client) => Promise<void>): Promise<void> {
  const client = connect(url);
  await use(client.queue("q"), client).finally(() => client.close());
}

function created(one: Receipt | DueqError): boolean {
  return !(one instanceof DueqError) && one.created;
}

for (const [name, driver] of Object.entries({ "node-redis": undefined, ioredis })) {
  test(`${name}: results of each call in each state`, async () => {
    const server = await RedisServer.start();
    const client = connect(server.url, { driver });
    const queue = client.queue("orders");
    const due = new Date(Date.now() + 3_600_000);
    const receipt = await queue.push("rate it", { id: "order:42", due, maxAttempts: 5, cost: 2 });
    assert.deepEqual(receipt, { id: "order:42", outcome: "created", created: true });
    const again = await queue.push("rate it", { id: "order:42" });
    assert.deepEqual(again, { id: "order:42", outcome: "exists", created: false, state: "scheduled" });
    const stored = await queue.get("order:42");
    assert(stored);
    assert.deepEqual([String(stored.payload), stored.maxAttempts, stored.cost], ["rate it", 5, 2]);
    assert.equal(stored.timeMs, due.getTime());
    const moved = await queue.reschedule("order:42", { delay: 60_000, expected: stored.timeMs });
    assert.equal(moved.outcome, "moved");
    assert.equal((await queue.reschedule("order:42", { due, expected: 1 })).outcome, "conflict");
    const replaced = await queue.push("other", { id: "order:42", delay: 9_000, onConflict: "replace" });
    assert.equal(replaced.outcome, "moved");
    assert.equal(await queue.runNow("order:42"), "moved");
    assert.equal(await queue.runNow("order:42"), "already");
    assert.equal(await queue.endOf("order:42"), null);
    assert.equal(await queue.cancel("order:42"), "cancelled");
    assert.equal(await queue.cancel("none"), "absent");
    assert.equal((await queue.endOf("order:42"))?.kind, "cancelled");
    assert.equal(await queue.get("order:42"), null);
    await client.close();
    await assert.rejects(queue.push(""), /the client is closed/);
  });
}

test("ids and payloads of any bytes come back", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (_, client) => {
    const queue = client.queue("die größte, Nr. 1");
    const payload = Buffer.from([...Array(256).keys()]);
    for (const id of ["größe", "🦀", "a b", Buffer.of(0xff, 0xfe), "x".repeat(200)]) {
      const receipt = await queue.push(payload, { id });
      assert.deepEqual((await queue.get(receipt.id))?.payload, payload);
    }
    for (const id of ["", "a\n", "\0", "x".repeat(201)]) {
      await assert.rejects(queue.push("", { id }), /an id has 1 to 200 bytes/);
    }
    await assert.rejects(queue.push({ a: 1 } as unknown as string), /a payload is a string or a Uint8Array/);
    await assert.rejects(queue.push("", { dleay: 5 } as object), /no option dleay/);
  });
});

test("calls under way gather what comes meanwhile", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.push("");
    const before = await server.calls("evalsha");
    const receipts = await Promise.all(Array.from({ length: 1_000 }, (_, n) => queue.push("x", { id: `a${n}` })));
    assert(receipts.every(created));
    const calls = (await server.calls("evalsha")) - before;
    assert(calls <= 8, `${calls} calls`);
    const large = new Message(Buffer.alloc(2 ** 20 + 1));
    const many = await queue.pushMany([new Message("x", { id: "a1" }), large, new Message("x", { id: "new" })]);
    assert.equal((many[0] as Receipt).outcome, "exists");
    assert.equal((many[1] as DueqError).code, "TOO_LARGE");
    assert(created(many[2]));
  });
});

test("a push whose reply is lost stores one message", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, async (queue) => {
    await queue.push("", { id: "first" });
    proxy.lose(SCRIPTS.push.sha);
    const receipt = await queue.push("x", { id: "a", delay: 60_000 });
    await proxy.lost;
    assert.deepEqual([receipt.outcome, receipt.state], ["exists", "scheduled"]);
    assert.equal(await server.meta("q", "pushed"), 2);
  });
});

test("a push whose message ended before the repetition is finished", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, (queue) =>
    withQueue(server.url, async (other) => {
      await queue.push("", { id: "first" });
      proxy.lose(SCRIPTS.push.sha, { hold: true });
      const push = queue.push("x", { id: "a", delay: 1_000 });
      await proxy.lost;
      await other.cancel("a");
      await sleep(200); // a repetition that counts as a new call would store the message again
      proxy.resume();
      assert.equal((await push).outcome, "finished");
      assert.equal(await server.meta("q", "pushed"), 2);
      assert.equal(await queue.get("a"), null);
    }),
  );
});

test("a replacement whose reply is lost is reported as unknown", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, async (queue) => {
    await queue.push("", { id: "a", onConflict: "replace" });
    proxy.lose(SCRIPTS.upsert.sha);
    await assert.rejects(queue.push("x", { id: "a", onConflict: "replace" }), (error: DueqError) => {
      assert.deepEqual([error.applied, error.id, error.retryable], ["unknown", "a", true]);
      return true;
    });
  });
});

test("a repeated cancel spares the message that was pushed since", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, (queue) =>
    withQueue(server.url, async (other) => {
      await queue.cancel("none");
      await queue.push("", { id: "a", delay: 60_000 });
      proxy.lose(SCRIPTS.cancel.sha, { hold: true });
      const cancel = queue.cancel("a");
      await proxy.lost;
      await other.push("new", { id: "a", delay: 60_000 });
      proxy.resume();
      assert.equal(await cancel, "cancelled");
      assert.equal(String((await queue.get("a"))?.payload), "new");
    }),
  );
});

test("calls go on after a kill and a freeze", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.push("", { id: "before" });
    await server.kill();
    const during = queue.push("", { id: "during", delay: 60_000 });
    await sleep(200);
    await server.start();
    assert((await during).created);
    server.signal("SIGSTOP");
    const frozen = queue.push("", { id: "frozen", delay: 60_000 });
    await sleep(300);
    server.signal("SIGCONT");
    assert.match((await frozen).outcome, /created|exists/);
  });
});

test("a server that never answers is a timeout, also as it is connected", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.push("", { id: "before" });
    server.signal("SIGSTOP");
    await assert.rejects(queue.push("", { id: "a", onConflict: "replace" }), (error: DueqError) => {
      assert.deepEqual([error.kind, error.applied], ["timeout", "unknown"]);
      return true;
    });
    const late = await queue.push("", { id: "b" }).catch((error: DueqError) => error);
    assert(late instanceof DueqError && late.retryable);
    server.signal("SIGCONT");
  });
});

test("a pause of this process and the server is no timeout", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.push("");
    await queue.push("", { id: "a", onConflict: "replace" });
    server.signal("SIGSTOP");
    const blocked = queue.push("", { id: "b", onConflict: "replace" });
    await sleep(100); // it is sent by now
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6_000);
    server.signal("SIGCONT");
    assert((await blocked).created);
  });
});

test("errors say whether the call was applied", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  const errorOf = async (url: string, name = "q", driver = undefined as typeof ioredis | undefined) => {
    const client = connect(url, { driver });
    const error = await client
      .queue(name)
      .push("", { id: "a" })
      .then(
        () => assert.fail("the push did not fail"),
        (error: unknown) => error,
      );
    await client.close();
    assert(error instanceof DueqError);
    return error;
  };
  await server.command("SET", "dueq:{taken}:scheduled", "x");
  const taken = await errorOf(server.url, "taken");
  assert.deepEqual([taken.code, taken.applied, taken.retryable], ["WRONGTYPE", "no", false]);
  await withQueue(server.url, async (_, client) => void (await client.queue("later").push("")));
  await server.command("HSET", "dueq:{later}:meta", "layout", 99);
  const later = await errorOf(server.url, "later");
  assert.deepEqual([later.kind, later.code], ["unsupported", "LAYOUT"]);
  await server.command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+info");
  for (const driver of [undefined, ioredis]) {
    const poor = await errorOf(server.url.replace("//", "//poor:secret@"), "q", driver);
    assert.deepEqual([poor.kind, poor.code, poor.applied], ["denied", "NOPERM", "no"]);
    const wrong = await errorOf(server.url.replace("//", "//poor:wrong@"), "q", driver);
    assert.deepEqual([wrong.kind, wrong.applied], ["denied", "no"]);
    assert(!wrong.message.includes("wrong@"));
  }
  await server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru");
  const evicting = await errorOf(server.url);
  assert.deepEqual([evicting.kind, evicting.applied], ["unsupported", "no"]);
  await server.command("CONFIG", "SET", "maxmemory-policy", "noeviction");
  await server.command("CONFIG", "SET", "maxmemory", 1);
  const full = await errorOf(server.url);
  assert.deepEqual([full.kind, full.code, full.applied], ["full", "OOM", "no"]);
  await server.kill();
  const away = await errorOf(server.url);
  assert.deepEqual([away.kind, away.applied, away.retryable], ["unavailable", "no", true]);
});

test("an aborted caller leaves the batch to the others", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.push("");
    const abort = new AbortController();
    const pushes = Array.from({ length: 10 }, (_, n) =>
      queue.push("x", { id: `a${n}` }, n === 3 ? { signal: abort.signal } : {}),
    );
    abort.abort(new Error("enough"));
    const results = await Promise.allSettled(pushes);
    const [aborted] = results.splice(3, 1);
    assert(aborted.status === "rejected" && aborted.reason.message === "enough");
    assert(results.every((one) => one.status === "fulfilled" && one.value.created));
    assert.equal(await queue.get("a3"), null); // it was not sent yet
  });
});

test("a URL that cannot be read does not show its password", () => {
  for (const url of [
    "http://x",
    "redis://u:secret@a:b:c/",
    "redis+sentinel://u:secret@x:1",
    "redis://u:secret@x/one",
  ]) {
    assert.throws(
      () => connect(url),
      (error: DueqError) => error.kind === "invalid_input" && !error.message.includes("secret"),
    );
  }
});
