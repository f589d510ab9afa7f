// The client, and the calls of producers on a queue.
import type { ConnectionOptions } from "node:tls";
import type { Answer, LaneVerb } from "./batches.js";
import type { Driver, Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, DueqError, invalid } from "./errors.js";
import { toConsole, type Log } from "./log.js";
import {
  checkedId,
  dueWord,
  Message,
  shown,
  unixMs,
  type Bytes,
  type CancelOutcome,
  type MessageEnd,
  type Milliseconds,
  type Moment,
  type Options,
  type PushOutcome,
  type Receipt,
  type Rescheduled,
  type RescheduleOutcome,
  type RunNowOutcome,
  type StoredMessage,
} from "./model.js";
import { nodeRedis } from "./node_redis.js";
import { get, result, type Known, type Result } from "./replies.js";
import type { Partition } from "./partition.js";
import { Router } from "./router.js";
import { HOME } from "./routes.js";
import { allSchedules, ScheduleHandle, ScheduleSet, type ScheduleInfo } from "./schedules.js";
import { serversOf, type Servers } from "./servers.js";
import { unlessAborted } from "./waiting.js";
import { Worker } from "./worker.js";

export interface ClientOptions {
  /** Whose connections it uses: node-redis, or those of `@dueq/client/ioredis`. */
  driver?: Driver;
  /** Certificates and more, for `rediss://`. */
  tls?: ConnectionOptions;
  /** Takes warnings and errors of workers; without it they go to the console. */
  log?: Log;
}

/** Ends the waiting for one call. What was sent already is applied all the same. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** The servers of a URL. Nothing is sent before the first call. */
export class Client {
  /** @internal */
  readonly log: Log;
  private readonly servers: Servers;
  private readonly routers = new Map<string, Router>();
  private closing: Promise<void> | undefined;

  constructor(url: string, options: ClientOptions = {}) {
    this.servers = serversOf(url, options.driver ?? nodeRedis, options.tls);
    this.log = options.log ?? toConsole;
  }

  /** The queue of this name: 1 to 128 bytes, no control characters and none of `/ { }`. */
  queue(name: string): Queue {
    let router = this.routers.get(name);
    if (!router) this.routers.set(name, (router = new Router(this.servers, name)));
    return new Queue(this, router);
  }

  /** A new worker, which handles the messages of the queues that it is given. */
  worker(): Worker {
    return new Worker(this);
  }

  /** @internal Refuses a call after `close`. */
  check(): void {
    if (this.closing) throw invalid("the client is closed: make a new one");
  }

  /** Waits for the calls that are under way, and closes the connections. */
  close(): Promise<void> {
    this.closing ??= Promise.all([...this.routers.values()].map((router) => router.drain())).then(() =>
      this.servers.close(),
    );
    return this.closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** One queue. Calls reject with `DueqError`; what may be expected is a value. */
export class Queue {
  constructor(
    /** @internal */ readonly client: Client,
    /** @internal */ readonly router: Router,
    private readonly confirmedBy?: Durability,
  ) {}

  get name(): string {
    return this.router.queue;
  }

  /** This queue with calls that wait until replicas or disks have confirmed them; null: the master's memory. */
  durability(durability: Durability | null): Queue {
    return new Queue(this.client, this.router, durability ?? undefined);
  }

  /** A set of schedules to declare: all of one owner, such as those of a service. */
  schedules(set: string): ScheduleSet {
    return new ScheduleSet(this, set);
  }

  /** One schedule of this queue. */
  schedule(name: string): ScheduleHandle {
    return new ScheduleHandle(this, name);
  }

  /** All schedules of this queue, in the order of their sets. */
  listSchedules(): Promise<ScheduleInfo[]> {
    return allSchedules(this);
  }

  /** @internal The schedules of a queue are at its home: a queue of several partitions has none. */
  get home(): Partition {
    this.client.check();
    return this.router.partition(HOME);
  }

  /**
   * Stores a message. Without `delay` and `due` it is due at once.
   * Pushes that are made while a call is under way share the next call.
   */
  async push(payload: Bytes, options?: Options, call?: CallOptions): Promise<Receipt> {
    return this.pushMessage(new Message(payload, options), call);
  }

  /** Stores a message that is made already. */
  async pushMessage(message: Message, call?: CallOptions): Promise<Receipt> {
    const { id, arguments: words, repeatable } = message;
    const verb = verbOf(message);
    const found = await this.item(verb, id, words, repeatable, call);
    const outcome = found.outcome as PushOutcome;
    const receipt = { id: shown(id), outcome, created: outcome === "created" };
    if (found.state) return { ...receipt, state: found.state };
    return found.ms === undefined ? receipt : { ...receipt, untilMs: found.ms };
  }

  /** Stores many messages in few calls. Each has a receipt or an error of its own, in their order. */
  async pushMany(messages: Iterable<Message>, call?: CallOptions): Promise<(Receipt | DueqError)[]> {
    return Promise.all(Array.from(messages, (message) => this.pushMessage(message, call).catch(failureOf)));
  }

  /** Removes a message that waits; with `dead` also one that is dead. Repeated, it is `cancelled` for 12 s. */
  async cancel(id: Bytes, options: { dead?: boolean } & CallOptions = {}): Promise<CancelOutcome> {
    const raw = checkedId(id);
    const found = await this.item(options.dead ? "cancel_dead" : "cancel", raw, [raw], true, options);
    return found.outcome as CancelOutcome;
  }

  /** Moves a message that waits. With `expected` only from that due time; then a `due` may be repeated. */
  async reschedule(
    id: Bytes,
    options: { delay?: Milliseconds; due?: Moment; expected?: Moment } & CallOptions,
  ): Promise<Rescheduled> {
    const { delay, due, expected } = options;
    if (delay === undefined && due === undefined) throw invalid("reschedule needs a delay or a due time");
    const raw = checkedId(id);
    const before = expected === undefined ? "" : String(unixMs(expected));
    // A repeated delay would count from the repetition.
    const repeatable = due !== undefined && before !== "";
    const found = await this.item("reschedule", raw, [raw, dueWord(delay, due), before], repeatable, options);
    const outcome = found.outcome as RescheduleOutcome;
    return found.ms === undefined ? { outcome } : { outcome, dueMs: found.ms };
  }

  /** Makes a message that waits due now. */
  async runNow(id: Bytes, options?: CallOptions): Promise<RunNowOutcome> {
    const raw = checkedId(id);
    return (await this.item("run_now", raw, [raw], false, options)).outcome as RunNowOutcome;
  }

  /** The message, whatever its state; null if the queue has none of this id. */
  async get(id: Bytes, options?: CallOptions): Promise<StoredMessage | null> {
    const found = await this.known(id, options);
    return found && "stored" in found ? found.stored : null;
  }

  /** How the message ended, if a `window` remembers it, or if it was cancelled in the last 12 s. */
  async endOf(id: Bytes, options?: CallOptions): Promise<MessageEnd | null> {
    const found = await this.known(id, options);
    return found && "end" in found ? found.end : null;
  }

  private async known(id: Bytes, options: CallOptions | undefined): Promise<Known> {
    this.client.check();
    const raw = checkedId(id);
    return unlessAborted(
      this.router.get(raw, (reply) => get(reply, raw)),
      options?.signal,
    );
  }

  private async item(
    verb: LaneVerb,
    id: Buffer,
    words: readonly Word[],
    repeatable: boolean,
    { signal }: CallOptions = {},
  ): Promise<Result> {
    this.client.check();
    let answer: Answer;
    try {
      const item = { id, words, repeatable, durability: this.confirmedBy };
      answer = await unlessAborted(this.router.item(verb, item, signal), signal);
    } catch (error) {
      if (signal?.aborted && error === signal.reason) throw error;
      throw asDueqError(error).ofMessage(shown(id));
    }
    try {
      return result(verb === "cancel_dead" ? "cancel" : verb, answer.text);
    } catch (error) {
      // The limits of the queue may have changed since an earlier try, which may have been applied.
      throw answer.repeated ? asDueqError(error).ofRepeated() : error;
    }
  }
}

/** What one message failed by. An aborted call has no errors of single messages. */
function failureOf(reason: unknown): DueqError {
  if (reason instanceof DueqError) return reason;
  throw reason;
}

function verbOf(message: Message): "push" | "upsert" {
  return message.onConflict === "keep" ? "push" : "upsert";
}
