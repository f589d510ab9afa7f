// The worker: a node that handles the messages of its queues.
import { randomInt } from "node:crypto";
import type { Client, Queue } from "./client.js";
import { Consumer, type Handler } from "./consumer.js";
import { Retry } from "./delivery.js";
import { invalid } from "./errors.js";
import { InBatches } from "./in_batches.js";
import { milliseconds, within, type Milliseconds } from "./model.js";

const DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MAX_LEASE_MS = 86_400_000; // a day

/** How a worker handles the messages of one queue. */
export interface QueueOptions {
  /** How many handlers run at once; 16 without it. Each queue has its own, so that none waits for another's. */
  concurrency?: number;
  /** How long a message stays with a worker that has died; 30 s without it. It is extended while the handler runs. */
  lease?: Milliseconds;
  /** The delays between attempts; from 1 s, doubling up to 1 h, without it. */
  retry?: Retry;
  /** How long a handler may run before it is aborted, and its message retried. */
  timeLimit?: Milliseconds;
}

export interface RunOptions {
  /** How long handlers may go on after the stop; 10 s without it. What they have not ended by then is released. */
  grace?: Milliseconds;
  /** Stops the worker when it is aborted. */
  signal?: AbortSignal;
}

/** Handles the messages of its queues, from `run` to `stop`. Made by `Client.worker`. */
export class Worker {
  private readonly consumers: Consumer[] = [];
  private readonly ended = new AbortController();
  private began = false;
  readonly nodeId = Array.from({ length: 16 }, () => DIGITS[randomInt(DIGITS.length)]).join("");

  /** @internal */
  constructor(private readonly client: Client) {}

  /**
   * Adds a queue. What its handler returns settles the delivery: a `Settlement`; anything else is an ack.
   * An exception is a retry after the delay of `retry`.
   */
  queue(queue: Queue | string, handler: Handler | InBatches, options: QueueOptions = {}): this {
    if (this.began) throw invalid("the worker runs: give it all queues before");
    const one = typeof queue === "string" ? this.client.queue(queue) : queue;
    if (this.consumers.some((consumer) => consumer.queue.name === one.name)) {
      throw invalid(`the worker has queue ${one.name} already`);
    }
    if (typeof handler !== "function" && !(handler instanceof InBatches)) {
      throw invalid(`queue ${one.name} needs a handler: a function of a delivery`);
    }
    const settings = {
      concurrency: within("concurrency", options.concurrency ?? 16, 10_000),
      leaseMs: within("lease", milliseconds(options.lease ?? 30_000), MAX_LEASE_MS),
      retry: options.retry ?? Retry.exponential(),
      timeLimitMs: options.timeLimit === undefined ? undefined : milliseconds(options.timeLimit),
    };
    if (handler instanceof InBatches && handler.lingerMs > settings.leaseMs / 3) {
      throw invalid(`a batch lingers for ${handler.lingerMs} ms, more than a third of the lease`);
    }
    this.consumers.push(new Consumer(one, handler, settings, this.nodeId));
    return this;
  }

  /** Handles messages until `stop`, or until the signal is aborted, and until the handlers have ended then. */
  async run({ grace = 10_000, signal }: RunOptions = {}): Promise<void> {
    if (this.began) throw invalid("the worker runs, or has run: make a new one");
    if (!this.consumers.length) throw invalid("the worker has no queue: add one by `queue` before it runs");
    this.client.check();
    const graceMs = milliseconds(grace);
    this.began = true;
    const stop = AbortSignal.any(signal ? [this.ended.signal, signal] : [this.ended.signal]);
    await Promise.all(this.consumers.map((consumer) => consumer.run(stop, graceMs)));
  }

  /** Claims no more messages, and ends `run` once the handlers have ended. Fit for signals of the process. */
  stop(): void {
    this.ended.abort();
  }
}
