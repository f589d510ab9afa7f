// A delivery, as a handler sees it, and what a handler may answer.
import { invalid } from "./errors.js";
import { dueWord, milliseconds, shown, type Message, type Milliseconds } from "./model.js";
import type { Granted } from "./replies.js";

const DOUBLINGS = 31;

/** The delays between attempts. They do not limit the number of attempts: the message or its queue does. */
export class Retry {
  private constructor(
    private readonly firstMs: number,
    private readonly mostMs: number,
    private readonly jitter: boolean,
  ) {}

  /** Doubling delays from `first` up to `most`, less a random part of up to half of each. */
  static exponential(first: Milliseconds = 1_000, most: Milliseconds = 3_600_000): Retry {
    const retry = new Retry(milliseconds(first), milliseconds(most), true);
    if (retry.firstMs > 0 && retry.firstMs <= retry.mostMs) return retry;
    throw invalid(`retry delays from ${first} to ${most}: the first must be above zero and not above the last`);
  }

  /** One delay for all retries, without jitter. */
  static fixed(delay: Milliseconds): Retry {
    const ms = milliseconds(delay);
    return new Retry(ms, ms, false);
  }

  /** The delay after this attempt; 1 is the first. */
  delayMs(attempt: number, chance = Math.random()): number {
    if (!this.jitter) return this.firstMs;
    const full = Math.min(this.firstMs * 2 ** Math.min(Math.max(attempt - 1, 0), DOUBLINGS), this.mostMs);
    return Math.floor(full * (1 - 0.5 * chance));
  }
}

export type SettlementVerb = "ack" | "ack_push" | "again" | "retry" | "release" | "bury" | "snooze" | "throttle";

/** How a delivery is settled. A handler returns one; any other value is an ack, and an exception a retry. */
export class Settlement {
  private constructor(
    /** @internal */ readonly verb: SettlementVerb,
    /** @internal The due time or the time to wait, as the script reads it. */ readonly word = "",
    /** @internal */ readonly text = "",
    /** @internal */ readonly messages: readonly Message[] = [],
  ) {}

  private static readonly acked = new Settlement("ack");

  /** Done: the message is removed. */
  static ack(): Settlement {
    return Settlement.acked;
  }

  /** Done, and in the same step these messages are stored, 100 at most. Those without an id are named after it. */
  static ackAnd(messages: readonly Message[]): Settlement {
    if (messages.length >= 1 && messages.length <= 100) return new Settlement("ack_push", "", "", [...messages]);
    throw invalid(`ackAnd takes 1 to 100 messages, not ${messages.length}`);
  }

  /** Done for this time: the message is due again then, with its attempts reset. */
  static again(then: Milliseconds | Date): Settlement {
    return new Settlement("again", wordOf(then));
  }

  /** Failed: due again after a delay, by default that of the worker; dead at the limit of attempts. */
  static retry(error: unknown, { after }: { after?: Milliseconds } = {}): Settlement {
    return new Settlement("retry", after === undefined ? "" : String(milliseconds(after)), describe(error));
  }

  /** Given back: due at once, and no attempt counts. */
  static release(): Settlement {
    return new Settlement("release");
  }

  /** Failed for good: the message is dead at once, for this reason. */
  static bury(reason: unknown): Settlement {
    return new Settlement("bury", "", describe(reason));
  }

  /** Too early: due again then, and no attempt counts. */
  static snooze(then: Milliseconds | Date): Settlement {
    return new Settlement("snooze", wordOf(then));
  }

  /** The receiver wants a break: given back, and no message of the queue starts for so long. */
  static throttle(wait: Milliseconds): Settlement {
    return new Settlement("throttle", String(milliseconds(wait)));
  }
}

function wordOf(then: Milliseconds | Date): string {
  return then instanceof Date ? dueWord(undefined, then) : dueWord(then, undefined);
}

/** What a handler has thrown, in one line or more. Anything may be thrown, also what cannot become a text. */
function describe(error: unknown): string {
  try {
    return String(error);
  } catch {
    return `a thrown ${typeof error} without a text`;
  }
}

/** The schedule that made a message, and the fire that it stands for. */
export interface Tick {
  readonly schedule: string;
  readonly nominalMs: number;
}

/** One message in the hands of a handler, under a lease that the worker extends. */
export class Delivery {
  readonly id: string;
  readonly idBytes: Buffer;
  readonly payload: Buffer;
  /** Failures and crashes before this delivery, plus one. */
  readonly attempt: number;
  /** How many leases of the message ran out before. */
  readonly crashes: number;
  /** Whether a failure of this attempt makes the message dead. */
  readonly isLastAttempt: boolean;
  /** When the message was due, in Unix milliseconds of the server. */
  readonly dueMs: number;
  /** No attempt of the message starts after this time. */
  readonly expiresAtMs: number | null;
  readonly traceParent: string | null;
  readonly snoozes: number;
  readonly cost: number;
  /** The schedule and the fire of a message that a schedule has made. */
  readonly tick: Tick | null;

  constructor(
    readonly queue: string,
    granted: Granted,
    /** @internal */ readonly token: Buffer,
    private readonly state: { readonly signal: AbortSignal; readonly isLost: boolean },
  ) {
    this.id = shown(granted.id);
    this.idBytes = granted.id;
    this.payload = granted.payload;
    this.attempt = granted.attempt;
    this.crashes = granted.crashes;
    this.isLastAttempt = granted.isLastAttempt;
    this.dueMs = granted.dueMs;
    this.expiresAtMs = granted.expiresAtMs;
    this.traceParent = granted.traceParent;
    this.snoozes = granted.snoozes;
    this.cost = granted.cost;
    const [, schedule, ms] = (granted.isTick && /^(.+)@(\d+)$/.exec(this.id)) || [];
    this.tick = schedule === undefined ? null : { schedule, nominalMs: Number(ms) };
  }

  /**
   * Is aborted when the handler should stop: its lease was lost, its time limit has passed, or the worker ends.
   * Pass it on to what the handler waits for, such as `fetch`.
   */
  get signal(): AbortSignal {
    return this.state.signal;
  }

  /** The payload as text. */
  get text(): string {
    return this.payload.toString();
  }

  /** The payload, parsed as JSON. */
  json<T = unknown>(): T {
    return JSON.parse(this.text) as T;
  }

  /** Whether the lease was lost: the message is or will be delivered again, so the handler should stop. */
  get isLost(): boolean {
    return this.state.isLost;
  }
}
