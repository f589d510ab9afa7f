// Workers that run while a test looks at them.
import assert from "node:assert/strict";
import { connect, type Client, type Queue, type Worker } from "../src/index.js";
import { setTimeout as sleep } from "node:timers/promises";
import { LIMIT, type RedisServer } from "./servers_for_tests.js";

/** Runs a worker until `use` has ended, and checks that it stops. */
export async function running(worker: Worker, use: () => Promise<void>, grace = 5_000): Promise<void> {
  const run = worker.run({ grace });
  try {
    await Promise.race([use(), run.then(() => assert.fail("the worker has ended"))]);
  } finally {
    worker.stop();
    const late = setTimeout(() => {
      throw new Error("the worker does not stop");
    }, LIMIT);
    await run;
    clearTimeout(late);
  }
}

/** Runs a test with a client and its queue `q`. Warnings are expected: the tests cause faults. */
export async function withQueue(url: string, use: (queue: Queue, client: Client) => Promise<void>): Promise<void> {
  const client = connect(url, { log: () => {} });
  await use(client.queue("q"), client).finally(() => client.close());
}

/**
 * The median of how late a call behind a timer is answered on this machine now, in milliseconds.
 * A bound of a test adds it some times: a busy machine is no fault of the library, and a poll would be later all the same.
 */
export async function latenessNow(server: RedisServer, delays: readonly number[]): Promise<number> {
  const late = delays.map(async (delay) => {
    const due = performance.now() + delay;
    await sleep(delay);
    await server.command("PING");
    return performance.now() - due;
  });
  return median(await Promise.all(late));
}

export function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

/** How often each name was seen. */
export class Counter {
  private readonly counts = new Map<string, number>();

  /** Counts a name, and returns how often it was seen. */
  add(name: string): number {
    const count = this.count(name) + 1;
    this.counts.set(name, count);
    return count;
  }

  count(name: string): number {
    return this.counts.get(name) ?? 0;
  }

  get size(): number {
    return this.counts.size;
  }

  /** The count of the most frequent name. */
  get most(): number {
    return Math.max(0, ...this.counts.values());
  }
}
