// Workers against a real server: settlements, leases, and faults.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { DueqError, Message, Retry, Settlement, type Client, type Delivery } from "../src/index.js";
import { list, text } from "../src/replies.js";
import { SCRIPTS } from "../src/scripts.js";
import { Proxy, RedisServer, until } from "./servers_for_tests.js";
import { Counter, latenessNow, median, running, withQueue } from "./workers_for_tests.js";

test("messages are handled on time and none early", async () => {
  const server = await RedisServer.start();
  // Here the disk, which other tests use at the same time, is not to count.
  await server.command("CONFIG", "SET", "appendfsync", "everysec");
  await withQueue(server.url, async (queue, client) => {
    const late: number[] = [];
    let machine = 0;
    const handle = (delivery: Delivery): void => {
      late.push(Date.now() - delivery.dueMs);
      assert.equal(delivery.text, delivery.id);
    };
    await running(client.worker().queue(queue, handle), async () => {
      const delays = Array.from({ length: 50 }, (_, n) => 200 + n * 20);
      await queue.pushMany(delays.map((delay, n) => new Message(`m${n}`, { id: `m${n}`, delay })));
      [machine] = await Promise.all([
        latenessNow(server, delays),
        until(async () => (await server.meta("q", "acked")) === 50),
      ]);
    });
    assert(Math.min(...late) >= 0, `${Math.min(...late)} ms early`);
    assert(median(late) < 100 + 8 * machine, `${median(late)} ms, the machine ${machine} ms`); // a poll would be later
  });
});

test("a notice tells of a message between two beats", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const [late, machine]: [number[], number[]] = [[], []];
    const handle = (delivery: Delivery) => void late.push(Date.now() - delivery.dueMs);
    await queue.push("", { delay: 3_600_000 });
    await running(client.worker().queue(queue, handle), async () => {
      await until(async () => (await server.command("PUBSUB", "SHARDCHANNELS")).length === 1);
      for (let count = 1; count <= 9; count += 1) {
        await queue.push("", { delay: 50 });
        machine.push(await latenessNow(server, [50]));
        await until(() => late.length === count);
      }
    });
    // Most of the beats, each 0.9 s, would be later.
    assert(median(late) < 100 + 8 * median(machine), `${median(late)} ms, the machine ${median(machine)} ms`);
  });
});

test("each settlement does what it says", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const seen = new Counter();
    const odd = { toString: () => assert.fail("no text") };
    const settlements: Record<string, () => unknown> = {
      bury: () => Settlement.bury("why not"),
      snooze: () => Settlement.snooze(60_000),
      again: () => Settlement.again(new Date(Date.now() + 60_000)),
      release: () => Settlement.release(),
      fail: async () => Promise.reject(new RangeError("no such order")),
      throw: () => {
        throw "at once";
      },
      odd: () => Promise.reject(odd),
      follow: () =>
        Settlement.ackAnd([new Message("one", { delay: 60_000 }), new Message("two", { id: "own", delay: 60_000 })]),
      "too long": () => Reflect.construct(Settlement, ["snooze", "+99999999999999999"]),
      early: () => Settlement.snooze(200 * 365 * 86_400_000),
      plain: () => "any other value is an ack",
    };
    const ids = Object.keys(settlements);
    const handle = (delivery: Delivery) => (seen.add(delivery.id) > 1 ? undefined : settlements[delivery.id]());
    await queue.pushMany(ids.map((id) => new Message("", { id })));
    await running(client.worker().queue(queue, handle, { retry: Retry.fixed(60_000) }), () =>
      until(async () => (await server.meta("q", "claimed")) === 12 && (await server.meta("q", "acked")) === 3),
    );
    for (const [id, state, error, failures] of [
      ["bury", "dead", "why not", 0],
      ["snooze", "scheduled", "", 0],
      ["again", "scheduled", "", 0],
      ["fail", "scheduled", "RangeError: no such order", 1],
      ["throw", "scheduled", "at once", 1],
      ["odd", "scheduled", "a thrown object without a text", 1],
      ["early", "scheduled", "DueqError: the delay is 6307200000000 ms, it must be 0 to 3155760000000 (100 years)", 1],
      ["{follow}/1", "scheduled", "", 0],
      ["own", "scheduled", "", 0],
    ] as const) {
      const stored = await queue.get(id);
      assert.deepEqual([id, stored?.state, stored?.error, stored?.failures], [id, state, error, failures]);
    }
    const long = await queue.get("too long");
    assert.equal(long?.failures, 1);
    assert.match(long.error, /snooze was refused: .*delay/);
  });
});

test("failures are retried with back-off until the limit", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const tries: [number, boolean, number][] = [];
    const handle = async (delivery: Delivery) => {
      tries.push([delivery.attempt, delivery.isLastAttempt, performance.now()]);
      throw new Error();
    };
    await queue.push("", { id: "a", maxAttempts: 3 });
    await running(client.worker().queue(queue, handle, { retry: Retry.fixed(100) }), () =>
      until(async () => (await server.meta("q", "died")) === 1),
    );
    assert.deepEqual(
      tries.map(([attempt, isLast]) => [attempt, isLast]),
      [
        [1, false],
        [2, false],
        [3, true],
      ],
    );
    assert(tries[1][2] - tries[0][2] >= 99 && tries[2][2] - tries[1][2] >= 99);
  });
});

test("exponential delays double up to the last, less a random part", () => {
  const retry = Retry.exponential(1_000, 60_000);
  const delays = [1, 2, 3, 7, 99].map((attempt) => [retry.delayMs(attempt, 0), retry.delayMs(attempt, 1)]);
  assert.deepEqual(delays, [
    [1_000, 500],
    [2_000, 1_000],
    [4_000, 2_000],
    [60_000, 30_000],
    [60_000, 30_000],
  ]);
  assert.throws(() => Retry.exponential(2_000, 1_000), DueqError);
});

test("a throttled queue starts nothing until it opens", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const starts: number[] = [];
    const handle = () => (starts.push(performance.now()) === 1 ? Settlement.throttle(300) : undefined);
    await queue.pushMany(Array.from({ length: 5 }, () => new Message("")));
    await running(client.worker().queue(queue, handle, { concurrency: 1 }), () =>
      until(async () => (await server.meta("q", "acked")) === 5),
    );
    assert(starts[1] - starts[0] >= 290, `${starts[1] - starts[0]} ms`);
  });
});

test("a long handler keeps its lease", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    await queue.push("", { id: "a" });
    await running(
      client.worker().queue(queue, () => sleep(1_500), { lease: 600 }),
      () => until(async () => (await server.meta("q", "acked")) === 1),
    );
    assert.equal(await server.meta("q", "claimed"), 1);
  });
});

test("a settlement that is denied for a moment is repeated", async () => {
  const server = await RedisServer.start();
  const rights = (...words: string[]) => server.command("ACL", "SETUSER", "worker", ...words);
  const denied = async () =>
    Number(/NOPERM:count=(\d+)/.exec(String(await server.command("INFO", "errorstats")))?.[1] ?? 0);
  await rights("on", ">secret", "~*", "&*", "+@all");
  await withQueue(server.url.replace("//", "//worker:secret@"), async (queue, client) => {
    await queue.push("", { id: "a" });
    const handle = async () => void (await rights("-evalsha", "-eval"));
    await running(client.worker().queue(queue, handle, { lease: 20_000 }), async () => {
      await until(async () => (await denied()) >= 10);
      await rights("+evalsha", "+eval");
      await until(async () => (await server.meta("q", "acked")) === 1);
    });
    assert.equal(await server.meta("q", "claimed"), 1);
  });
});

test("a handler whose lease is ended is aborted and settles nothing", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const lost: unknown[] = [];
    const handle = async (delivery: Delivery) => {
      if (delivery.attempt > 1) return;
      const name = createHash("sha1").update(delivery.token).digest("hex").slice(0, 16);
      const ended = await queue.router.partition("-").call("reap", ["ids", "a", name]);
      assert.match(text(list(ended.body[0])[0]), /^SCHEDULED/);
      await once(delivery.signal, "abort");
      lost.push(delivery.isLost, delivery.signal.reason.message);
    };
    await queue.push("", { id: "a" });
    await running(client.worker().queue(queue, handle, { lease: 600 }), () =>
      until(async () => (await server.meta("q", "acked")) === 1),
    );
    assert.deepEqual(lost, [true, "the lease was lost"]);
    assert.equal(await server.meta("q", "claimed"), 2);
  });
});

test("a handler that outlives its time limit is retried", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const handle = async ({ id, signal }: Delivery) => {
      if (id === "obeys") await sleep(60_000, undefined, { signal });
      else if (id === "hangs") await new Promise(() => {});
    };
    await queue.pushMany(["obeys", "hangs", "quick"].map((id) => new Message("", { id })));
    await running(client.worker().queue(queue, handle, { timeLimit: 300, retry: Retry.fixed(60_000) }), () =>
      until(async () => (await queue.get("obeys"))?.failures === 1 && (await queue.get("hangs"))?.failures === 1),
    );
    assert.equal((await queue.get("hangs"))?.error, "TimeoutError: the time limit of 300 ms has passed");
    assert.equal(await queue.get("quick"), null);
  });
});

test("a grant whose reply is lost is found by held", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, async (queue, client) => {
    const attempts: number[] = [];
    const handle = (delivery: Delivery) => void attempts.push(delivery.attempt);
    await running(client.worker().queue(queue, handle, { lease: 20_000 }), async () => {
      await queue.push("", { id: "first" });
      await until(async () => (await server.meta("q", "acked")) === 1);
      await queue.push("", { id: "a", delay: 200 });
      proxy.lose(SCRIPTS.claim.sha);
      await proxy.lost;
      await until(async () => (await server.meta("q", "acked")) === 2, 10_000);
    });
    assert.deepEqual(attempts, [1, 1]);
    assert.equal(await server.meta("q", "claimed"), 2);
  });
});

test("an ack whose reply is lost is repeated", async () => {
  const server = await RedisServer.start();
  const proxy = await Proxy.start(server);
  await withQueue(proxy.url, async (queue, client) => {
    const runs: string[] = [];
    const handle = (delivery: Delivery) => void runs.push(delivery.id);
    await running(client.worker().queue(queue, handle, { lease: 1_000 }), async () => {
      await queue.push("", { id: "first" });
      await until(async () => (await server.meta("q", "acked")) === 1);
      proxy.lose(SCRIPTS.ack.sha);
      await queue.push("", { id: "a" });
      await proxy.lost;
      await sleep(2_000); // longer than the lease: a second delivery would have come
    });
    assert.deepEqual(runs, ["first", "a"]);
  });
});

test("faults of the server lose and double nothing", { timeout: 60_000 }, async () => {
  // Kills, freezes and cut connections while 600 messages become due.
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const runs = new Counter();
    const handle = (delivery: Delivery) => {
      assert(Date.now() >= delivery.dueMs);
      runs.add(delivery.id);
    };
    await running(client.worker().queue(queue, handle, { lease: 20_000 }), async () => {
      const messages = Array.from({ length: 600 }, (_, n) => new Message("", { id: `m${n}`, delay: n * 10 }));
      const pushed = await queue.pushMany(messages);
      assert(pushed.every((one) => !(one instanceof DueqError)));
      for (const fault of ["cut", "kill", "freeze", "cut", "kill"]) {
        await sleep(800);
        if (fault === "cut") {
          for (const kind of ["normal", "pubsub"])
            await server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes");
        } else if (fault === "kill") {
          await server.kill();
          await server.start();
        } else {
          server.signal("SIGSTOP");
          await sleep(1_000);
          server.signal("SIGCONT");
        }
      }
      await until(() => runs.size === 600);
    });
    assert.equal(runs.most, 1);
    const left = ["leases", "scheduled"].map((name) => server.command("ZCARD", `dueq:{q}:${name}`));
    assert.deepEqual(await Promise.all(left), [1, 1]); // the placeholders
  });
});

const WORKER = `
import { connect } from "./src/index.js";
await connect(process.argv[1]).worker().queue("q", async (delivery) => {
  console.log(delivery.id, delivery.attempt, delivery.crashes);
  await new Promise((resolve) => setTimeout(resolve, 60_000));
}, { lease: 1_000 }).run();
`;

test("the message of a killed worker comes back", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const seen: Delivery[] = [];
    const cwd = new URL("..", import.meta.url);
    const other = spawn(process.execPath, ["--input-type=module", "-e", WORKER, server.url], { cwd });
    await queue.push("", { id: "a" });
    const [line] = await once(other.stdout, "data");
    assert.equal(String(line), "a 1 0\n");
    await running(
      client.worker().queue(queue, (delivery) => void seen.push(delivery)),
      async () => {
        other.kill("SIGKILL");
        await until(() => seen.length, 8_000);
        assert.deepEqual([seen[0].attempt, seen[0].crashes], [2, 1]);
        await until(async () => (await server.meta("q", "acked")) === 1);
      },
    );
  });
});

test("stopping ends handlers and releases what does not end", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    let began = 0;
    const handle = async ({ id, signal }: Delivery) => {
      began += 1;
      if (id === "short") await sleep(200);
      else if (id === "long") await sleep(60_000, undefined, { signal });
      else await new Promise(() => {});
    };
    await queue.pushMany(["short", "long", "stubborn"].map((id) => new Message("", { id })));
    let stopped = 0;
    const worker = client.worker().queue(queue, handle);
    await running(
      worker,
      async () => {
        await until(() => began === 3);
        stopped = performance.now();
      },
      500,
    );
    assert(performance.now() - stopped < 5_000);
    assert.equal(await queue.get("short"), null);
    for (const id of ["long", "stubborn"]) {
      const stored = await queue.get(id);
      assert.deepEqual([id, stored?.state, stored?.failures, stored?.crashes], [id, "scheduled", 0, 0]);
    }
    assert.equal(await server.command("ZCARD", "dueq:{q}:nodes"), 1);
  });
});

test("an aborted run stops gracefully, and runs once", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const stop = new AbortController();
    const worker = client.worker().queue(queue, async () => {
      stop.abort();
      await sleep(200);
    });
    await queue.push("", { id: "a" });
    await worker.run({ signal: stop.signal });
    assert.equal(await server.meta("q", "acked"), 1);
    await assert.rejects(worker.run(), /has run/);
    assert.throws(() => worker.queue("other", () => {}), /the worker runs/);
  });
});

test("a busy queue does not delay another", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    let done = false;
    const slow = ({ signal }: Delivery) => sleep(30_000, undefined, { signal });
    const worker = client.worker().queue(queue, slow, { concurrency: 4 });
    worker.queue("quick", () => void (done = true), { concurrency: 1 });
    await queue.pushMany(Array.from({ length: 50 }, () => new Message("")));
    await running(
      worker,
      async () => {
        await until(async () => (await server.meta("q", "claimed")) === 4);
        await client.queue("quick").push("");
        await until(() => done, 5_000);
      },
      0,
    );
  });
});

test("a worker with a backlog waits for no wake-up token", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    await queue.pushMany(Array.from({ length: 5_000 }, () => new Message("")));
    const worker = client.worker().queue(queue, () => {}, { concurrency: 50 });
    await running(worker, async () => {
      await until(async () => (await server.meta("q", "acked")) === 5_000);
      // Two tokens are there when the worker begins and when it ends.
      const pops = await server.calls("blpop");
      assert(pops <= 10, `${pops} pops`);
    });
  });
});

test("an idle worker only beats and waits", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    await queue.push("", { delay: 3_600_000 });
    await running(
      client.worker().queue(queue, () => {}),
      async () => {
        await sleep(1_000);
        const [calls, pops] = [await server.calls("evalsha"), await server.calls("blpop")];
        const began = performance.now();
        await queue.push("", { delay: 2_000 });
        await sleep(3_000);
        const [scripts, waits] = [(await server.calls("evalsha")) - calls, (await server.calls("blpop")) - pops];
        const seconds = (performance.now() - began) / 1_000;
        // A beat each 0.9 s; the push, and when it is due, its claim, a last one, and its ack. A busy machine estimates
        // the server's clock worse, and so claims a moment too early some times: a poll would do so hundreds of times.
        assert(scripts <= Math.ceil(seconds / 0.9) + 15, `${scripts} calls in ${seconds} s`);
        assert(waits <= Math.ceil(seconds) + 3, `${waits} waits in ${seconds} s`);
      },
    );
  });
});

test("a clock that is an hour off makes nothing early or late", async (context) => {
  const server = await RedisServer.start();
  const real = Date.now;
  for (const hours of [-1, 1]) {
    context.mock.method(Date, "now", () => real() + hours * 3_600_000);
    await withQueue(server.url, async (queue, client) => {
      const late: number[] = [];
      const handle = ({ dueMs }: Delivery) => void late.push(real() - dueMs);
      await running(client.worker().queue(queue, handle), async () => {
        await queue.push("", { delay: 300 });
        await until(() => late.length);
      });
      assert(late[0] >= 0 && late[0] < 30_000, `${late[0]} ms`);
    });
    context.mock.restoreAll();
  }
});

test("two workers share the messages and take over", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, (queue, one) =>
    withQueue(server.url, async (_, two) => {
      const by = new Counter();
      const worker = (name: string, client: Client) =>
        client.worker().queue(
          "q",
          async () => {
            by.add(name);
            await sleep(10);
          },
          { concurrency: 4 },
        );
      await running(worker("one", one), async () => {
        await running(worker("two", two), async () => {
          await queue.pushMany(Array.from({ length: 400 }, (_, n) => new Message("", { delay: 100 + n * 2.5 })));
          await until(async () => (await server.meta("q", "acked")) === 400);
        });
        assert(Math.min(by.count("one"), by.count("two")) > 20);
        const began = performance.now();
        await queue.push("", { delay: 200 });
        await until(async () => (await server.meta("q", "acked")) === 401);
        assert(performance.now() - began < 2_000);
      });
    }),
  );
});
