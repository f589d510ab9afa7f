// Calls of the scripts at one partition of a queue, and how long a failed call is repeated.
import { randomBytes } from "node:crypto";
import { Clock, monotonic } from "./clock.js";
import type { Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, type DueqError } from "./errors.js";
import { list, readReply, text, type Reply } from "./replies.js";
import { Keys } from "./routes.js";
import type { Verb } from "./scripts.js";
import type { Servers } from "./servers.js";
import { pause } from "./waiting.js";

/** How long a call is repeated before its error is reported, in milliseconds. */
export const PATIENCE = 10_000;
/** From this uncertainty of the server's clock on, its time is asked for. */
const UNSURE_US = 1_000_000;

/** The repetitions of one call: for 10 s, with pauses from 10 ms, doubling up to 500 ms. */
export class Patience {
  private readonly end = monotonic() + PATIENCE;
  private next = 10;

  /** Whether a call that ended with this error may be sent again. */
  allows(error: DueqError, repeatable = true): boolean {
    const harmless = repeatable || error.applied === "no";
    const passes = error.kind === "unavailable" || error.kind === "timeout";
    return harmless && passes && !error.isRemapped && monotonic() < this.end;
  }

  async pause(): Promise<void> {
    await pause(this.next * (0.5 + Math.random() / 2));
    this.next = Math.min(this.next * 2, 500);
  }
}

/** What makes the tries of one push recognisable: all of them send the same argument. */
export class Attempt {
  readonly argument: string;
  readonly latestStartUs: number;

  constructor(clock: Clock) {
    const now = monotonic();
    // From the earliest time at which the first try may begin: then no message that ended before is taken for it.
    const untilUs = clock.earliestUs(now) + PATIENCE * 1e3;
    const fraction = String(untilUs % 1_000).padStart(3, "0");
    this.argument = `${Math.floor(untilUs / 1_000)}.${fraction} ${randomBytes(12).toString("hex")}`;
    this.latestStartUs = clock.latestUs(now);
  }
}

/** One partition: its keys, and the clock of its server. */
export class Partition {
  readonly keys: Keys;
  readonly clock = new Clock();

  constructor(
    private readonly servers: Servers,
    readonly queue: string,
    readonly tag: string,
  ) {
    this.keys = new Keys(queue, tag);
  }

  /** One try of a call. */
  async call(verb: Verb, args: readonly Word[], fence = "", durability?: Durability): Promise<Reply> {
    const sent = monotonic();
    const words = [fence, ...args];
    const { raw, missing } = durability
      ? await this.servers.runDurably(verb, this.keys.ten, words, durability)
      : { raw: await this.servers.run(verb, this.keys.ten, words), missing: "" };
    const reply = readReply(verb, raw, sent, monotonic(), missing);
    this.clock.observe(sent, reply.received, reply.header.nowUs);
    return reply;
  }

  /** Repeats a call that may be repeated, for up to 10 s. */
  async callPatiently(verb: Verb, args: readonly Word[], fence = ""): Promise<Reply> {
    const patience = new Patience();
    for (let unknown = false; ; await patience.pause()) {
      try {
        return await this.call(verb, args, fence);
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (!patience.allows(error)) throw unknown ? error.ofRepeated() : error;
        unknown ||= error.applied !== "no";
      }
    }
  }

  /** Asks the server for its time, unless the clock is known well enough. */
  async learnTime(again = false): Promise<void> {
    const sent = monotonic();
    if (!again && this.clock.known && this.clock.spreadUs(sent) < UNSURE_US) return;
    const [seconds, us] = list(await this.ask("TIME"));
    this.clock.observe(sent, monotonic(), Number(text(seconds)) * 1e6 + Number(text(us)));
  }

  /** The text of the map in this partition's meta; empty without one. */
  async readMap(): Promise<string> {
    const map = await this.ask("HGET", this.keys.meta, "map");
    return map === null ? "" : text(map);
  }

  /** A command that changes nothing, and so was not applied if it fails. */
  private async ask(...words: Word[]) {
    try {
      return await this.servers.call(this.keys.meta, ...words);
    } catch (error) {
      throw asDueqError(error).marked("no");
    }
  }
}
