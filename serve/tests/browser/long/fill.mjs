// The data of `big`: a queue with millions of messages, and small ones.
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { until } from "../harness.mjs";

export const MAIN = "main";
const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
/** What share of the messages is due between two times from now. The rest is due in the last part. Two parts have so few
 * messages that a test can follow their bars to the end. */
const PARTS = [
  [2 * MINUTE, 20 * HOUR, 0.35],
  [20 * HOUR, 26 * HOUR, 0.001],
  [26 * HOUR, 48 * HOUR, 0.349],
  [2 * DAY, 30 * DAY, 0.25],
  [30 * DAY, 40 * DAY, 0.0005],
  [40 * DAY, 60 * DAY, 1],
];
const OVERDUE = 3_000;
/** Of the messages that are due before the others come: so many get these states, and the rest becomes ready. */
const FIRST = 1_000, DEAD = 400, LEASED = 100;
const SMALL = 10;
const PAYLOAD = "x".repeat(100);
/** Lines of a write. */
const CHUNK = 1_000;
/** Programs that push at the same time. */
const PUSHERS = 2;

/** Due times, in Unix milliseconds, in the order of the pushes. */
const dues = (count, nowMs) => {
  const all = new Float64Array(count);
  // The same numbers in each run.
  let state = 1;
  const random = () => {
    state = Math.imul(state, 1_664_525) + 1_013_904_223 >>> 0;
    return state / 2 ** 32;
  };
  let at = 0;
  const fill = (end, from, before) => {
    for (; at < Math.min(end, count); at += 1) all[at] = Math.floor(nowMs + from + random() * (before - from));
  };
  fill(OVERDUE, -10 * DAY, -HOUR);
  for (const [from, before, share] of PARTS) fill(at + Math.ceil(share * count), from, before);
  return all;
};

/** Pushes messages by `dueq push`. */
const pushAll = async (bench, all, report) => {
  let pushed = 0;
  const lines = function* (first) {
    for (let begin = first * CHUNK; begin < all.length; begin += PUSHERS * CHUNK) {
      let text = "";
      const end = Math.min(begin + CHUNK, all.length);
      for (let number = begin; number < end; number += 1) {
        text += `{"id":"w${number}","at":"${all[number]}","payload":"${PAYLOAD}"}\n`;
      }
      yield text;
      if (Math.floor((pushed + end - begin) / 1_000_000) > Math.floor(pushed / 1_000_000)) report.progress(`${pushed} messages are pushed`);
      pushed += end - begin;
    }
  };
  await Promise.all(Array.from({ length: PUSHERS }, async (_, first) => {
    const child = bench.start(`push-${first}`, bench.program, ["push", MAIN, "--ndjson", "-"], { env: { REDIS_URL: bench.url }, readsInput: true });
    await pipeline(Readable.from(lines(first)), child.stdin);
    const code = await child.ended;
    if (code !== 0) throw new Error(`dueq push ended with ${code}: ${bench.log(`push-${first}`).slice(-500)}`);
  }));
};

/** Messages in the other states. The server that makes them attends the queue from then on, so it is ended. */
const otherStates = async (bench) => {
  const site = await bench.serve();
  await site.push(MAIN, Array.from({ length: FIRST }, (_, number) => ({ id: `r${number}`, payload: PAYLOAD })));
  const take = async (count) => {
    const taken = [];
    while (taken.length < count) {
      const claim = { max: Math.min(100, count - taken.length), lease_ms: DAY, wait_ms: 10_000 };
      const answer = await site.call("POST", `/v1/queues/${MAIN}/claims`, claim);
      taken.push(...answer.deliveries);
    }
    return taken;
  };
  const deliveries = await take(DEAD + LEASED);
  const settlements = deliveries.slice(0, DEAD).map(({ handle }, number) => ({
    handle, action: "bury", error: `the bank is closed, branch ${number % 20}`,
  }));
  for (let begin = 0; begin < DEAD; begin += 100) {
    await site.call("POST", `/v1/queues/${MAIN}/settlements`, { settlements: settlements.slice(begin, begin + 100) });
  }
  await until("the others are ready", async () => {
    const { ready } = await site.counts(MAIN);
    return ready === FIRST - DEAD - LEASED;
  });
  await bench.end(site.child);
};

/** Fills the Redis of the bench. Returns when its scheduled messages are due, ascending. */
export const fill = async (bench, { messages, queues }, report) => {
  const begun = Date.now();
  await otherStates(bench);
  const all = dues(messages, Date.now());
  await pushAll(bench, all, report);
  const site = await bench.serve();
  for (let number = 0; number < queues; number += 1) {
    const name = `small-${`${number}`.padStart(4, "0")}`;
    await site.push(name, Array.from({ length: SMALL }, (_, at) => ({ id: `s${at}`, payload: PAYLOAD, delay: `${1 + at + number % 48}h` })));
  }
  await bench.end(site.child);
  report.progress(`${messages} messages wait beside ${queues} small queues, after ${Math.round((Date.now() - begun) / 1_000)} s`);
  return all.sort();
};
