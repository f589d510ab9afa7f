// Schedules that are declared from code.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Schedule, type Delivery, type DueqError } from "../src/index.js";
import { RedisServer, until } from "./servers_for_tests.js";
import { running, withQueue } from "./workers_for_tests.js";

const names = (all: readonly { name: string }[]) => all.map(({ name }) => name);

test("a set is declared, changed and pruned", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    const billing = queue.schedules("billing");
    const sync = new Schedule("sync", { every: 900_000 });
    const report = new Schedule("report", { every: 3_600_000, payload: "{}" });
    assert.deepEqual(names((await billing.apply([sync], { dryRun: true })).created), ["sync"]);
    assert.deepEqual(await queue.listSchedules(), []);
    const first = await billing.apply([sync, report], { revision: 2, fireNow: true });
    assert.deepEqual(names(first.created), ["sync", "report"]);
    assert(first.created[0].nextMs);
    const second = await billing.apply([sync, new Schedule("report", { every: 60_000 })], { revision: 2 });
    assert.deepEqual([names(second.kept), names(second.changed)], [["sync"], ["report"]]);
    await assert.rejects(billing.apply([], { revision: 1, prune: true }), (error: DueqError) => error.code === "STALE");
    const bad = [new Schedule("fast", { every: 1 }), new Schedule("new", { every: 60_000 })];
    await assert.rejects(billing.apply(bad), /schedule fast: .*nothing was changed/);
    assert.deepEqual(names(await queue.listSchedules()), ["report", "sync"]);
    assert.deepEqual((await billing.apply([report], { prune: true })).removed, ["sync"]);
    const many = Array.from({ length: 24 }, (_, n) => new Schedule(`s${n}`, { every: 60_000 }));
    await queue.schedules("one").apply(many);
    assert.equal((await queue.schedules("one").apply([], { prune: true, forget: true })).removed.length, 24);
    await assert.rejects(billing.apply([...many, sync]), /several sets/);
  });
});

test("one schedule is read, paused and removed", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue) => {
    await queue.schedules("billing").apply([new Schedule("sync", { every: 900_000 })], { fireNow: true });
    const one = queue.schedule("sync");
    const found = await one.get();
    assert.deepEqual([found?.state, found?.triggered, found?.spec], ["active", 1, "set=billing every=900000"]);
    assert(await one.pause());
    assert.deepEqual(
      (await queue.listSchedules()).map(({ state }) => state),
      ["paused"],
    );
    assert(await one.resume());
    assert(await one.remove());
    assert(!(await one.remove()));
    assert.equal(await one.get(), null);
  });
});

test("a worker handles the ticks", async () => {
  const server = await RedisServer.start();
  await withQueue(server.url, async (queue, client) => {
    const ticks: Delivery["tick"][] = [];
    await queue.push("", { id: "sync@7" }); // an id like that of a tick
    await queue.schedules("billing").apply([new Schedule("sync", { every: 100, missed: "all", limit: 3 })]);
    await running(
      client.worker().queue(queue, ({ tick }) => void ticks.push(tick)),
      () => until(() => ticks.length === 4),
    );
    const [user, ...made] = ticks;
    assert.equal(user, null);
    assert.deepEqual(
      made.map((tick) => [tick?.schedule, Number(tick?.nominalMs) - Number(made[0]?.nominalMs)]),
      [
        ["sync", 0],
        ["sync", 100],
        ["sync", 200],
      ],
    );
  });
});
