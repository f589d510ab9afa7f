// Calls of producers against a real server: results, gathering, and replies that are lost.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, DueqError, Message, type ErrorKind, type Receipt } from "../src/index.js";
import { ioredis } from "../src/ioredis.js";
import { SCRIPTS } from "../src/scripts.js";
import { Proxy, RedisServer } from "./servers_for_tests.js";
import { withQueue } from "./workers_for_tests.js";

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

test("ids that the library makes ascend, and are short", () => {
  const ids = Array.from({ length: 10_000 }, () => String(new Message("").id));
  assert.deepEqual(ids, [...ids].sort());
  assert.equal(new Set(ids).size, ids.length);
  assert(ids.every((id) => id.length <= 30));
});

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
  });
});

test("an error of bad input shows the value and the rule", () => {
  const refused: [string, unknown, object][] = [
    ["a payload is a string or a Uint8Array, not object: encode it, such as by JSON.stringify", { a: 1 }, {}],
    ["a payload is a string or a Uint8Array, not null: encode it, such as by JSON.stringify", null, {}],
    ["an id is a string or a Uint8Array, not number: encode it, such as by JSON.stringify", "", { id: 42 }],
    ['message id "é\\u0000" of 3 bytes: an id has 1 to 200 bytes, none of them a control byte', "", { id: "é\0" }],
    ["a message has no option dleay: `Options` lists them", "", { dleay: 5 }],
    ["a time is a number of milliseconds, not string", "", { delay: "5" }],
    ["onConflict is new, it must be one of keep, reschedule, replace, next", "", { onConflict: "new" }],
    ["cost is 0.5, it must be a whole number from 1 to 1000000", "", { cost: 0.5 }],
  ];
  for (const [message, payload, options] of refused) {
    assert.throws(() => new Message(payload as string, options), { kind: "invalid_input", applied: "no", message });
  }
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

// Each with what was done to the server, the user of the URL, and what the error says, also what to do.
const CREDENTIALS = /give user and password in the URL/;
const REFUSALS: [string, (string | number)[][], string, ErrorKind, string | undefined, RegExp][] = [
  ["a wrong type", [["SET", "dueq:{q}:scheduled", "x"]], "", "server", "WRONGTYPE", /`dueq doctor QUEUE`/],
  ["a new layout", [["HSET", "dueq:{q}:meta", "layout", 99]], "", "unsupported", "LAYOUT", /install a newer version/],
  ["no right", [], "poor:secret@", "denied", "NOPERM", /`dueq acl ROLE QUEUE`/],
  ["a wrong password", [], "poor:wrong@", "denied", "WRONGPASS", CREDENTIALS],
  ["no password", [["ACL", "SETUSER", "default", "resetpass", ">secret"]], "", "denied", "NOAUTH", CREDENTIALS],
  [
    "an evicting server",
    [["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]],
    "",
    "unsupported",
    undefined,
    /set noeviction/,
  ],
  ["a full server", [["CONFIG", "SET", "maxmemory", 1]], "", "full", "OOM", /raise maxmemory/],
];

for (const [name, commands, user, kind, code, hint] of REFUSALS) {
  test(`a refusal has its code and says what to do: ${name}`, async () => {
    const server = await RedisServer.start();
    await server.command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+info");
    await withQueue(server.url, async (queue) => void (await queue.push("", { id: "first" })));
    for (const command of commands) {
      if (command[0] === "SET") await server.command("DEL", command[1]);
      await server.command(...command);
    }
    for (const driver of [undefined, ioredis]) {
      const client = connect(server.url.replace("//", `//${user}`), { driver, log: () => {} });
      await assert.rejects(client.queue("q").push("", { id: "a" }), (error: DueqError) => {
        assert.deepEqual([error.kind, error.code, error.applied], [kind, code, "no"], error.message);
        assert.match(error.message, hint);
        assert(!error.message.includes("wrong@"));
        return true;
      });
      await client.close();
    }
  });
}

test("a server that is too old is refused", async () => {
  const stub = net.createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (data) => {
      const info = "redis_version:6.2.14\r\n";
      for (const call of data.toString().split(/^\*/m).slice(1)) {
        socket.write(call.includes("INFO") ? `$${info.length}\r\n${info}\r\n` : "+OK\r\n");
      }
    });
  });
  await once(stub.listen(0, "127.0.0.1"), "listening");
  const client = connect(`redis://127.0.0.1:${(stub.address() as net.AddressInfo).port}/`);
  await assert.rejects(client.queue("q").push(""), (error: DueqError) => {
    assert.deepEqual([error.kind, error.applied], ["unsupported", "no"]);
    assert.match(error.message, /version 6\.2\.14, and dueq needs Redis 7\.0/);
    return true;
  });
  await client.close();
  stub.close();
});

test("a server that is away is unavailable", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  await server.kill();
  await withQueue(server.url, async (queue) => {
    await assert.rejects(queue.push(""), (error: DueqError) => {
      assert.deepEqual([error.kind, error.applied, error.retryable], ["unavailable", "no", true]);
      return true;
    });
  });
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
