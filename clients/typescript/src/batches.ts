// Gathers the items of many callers into calls: while one call is under way, the items that come share the next one.
import { monotonic } from "./clock.js";
import type { Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, DueqError, unconfirmed, unexpected } from "./errors.js";
import { Attempt, PATIENCE, Patience, type Partition } from "./partition.js";
import { isChange, list, text, verdict, type Reply } from "./replies.js";
import type { Verb } from "./scripts.js";

const BATCH_BYTES = 1024 * 1024;
/** With this many waiting items a second call may be under way: a call costs Redis about as much as eight items. */
const ENOUGH = 32;
const LINGER = 1;
const MOST: Record<string, number> = { push: 256, ack: 256, upsert: 64, throttle: 16 };
const SETTLEMENTS = new Set(["ack", "again", "release", "bury", "retry", "snooze", "throttle"]);
/** The verb of a lane: that of a script, or the cancel that takes dead messages too. */
export type LaneVerb = Verb | "cancel_dead";

/** The result of one item as the script said it, and whether the item was sent more than once. */
export interface Answer {
  readonly text: string;
  readonly nowUs: number;
  readonly repeated: boolean;
}

/** The partition has another map; no try of the item was applied, or `error` says that one may have been. */
export class Refused extends Error {
  constructor(readonly error: DueqError) {
    super(error.message);
  }
}

interface Item {
  readonly words: readonly Word[];
  readonly repeatable: boolean;
  /** Drops the item if it is aborted before it is sent. */
  readonly signal: AbortSignal | undefined;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/** The calls of one verb at one partition, under one fence. */
export class Lane {
  private readonly most: number;
  private readonly linger: number;
  private readonly enough: number;
  private waiting: Item[] = [];
  private unsafe = 0;
  /** The calls under way, and whether one of them must not be repeated. */
  private readonly calls = new Map<Promise<void>, boolean>();
  private timer: NodeJS.Timeout | NodeJS.Immediate | undefined;
  private lastSent = 0;

  constructor(
    private readonly partition: Partition,
    private readonly verb: LaneVerb,
    private readonly fence = "",
    private readonly durability?: Durability,
  ) {
    this.most = MOST[verb] ?? 128;
    // Nobody waits for the settlements of handlers, so they wait a little for each other.
    const settles = SETTLEMENTS.has(verb);
    this.linger = settles ? LINGER : 0;
    this.enough = settles ? 128 : ENOUGH;
  }

  /** Adds an item. Once it was sent, it is applied even if its signal is aborted. */
  submit(words: readonly Word[], repeatable = true, signal?: AbortSignal): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ words, repeatable, signal, resolve, reject });
      this.unsafe += Number(!repeatable);
      this.wake();
    });
  }

  get idle(): boolean {
    return !this.waiting.length && !this.calls.size;
  }

  /** Waits until nothing is waiting or under way. */
  async drain(): Promise<void> {
    while (!this.idle) {
      this.start();
      if (this.calls.size) await Promise.race(this.calls.keys());
    }
  }

  private wake(): void {
    if (!this.waiting.length || !this.mayStart()) return;
    const full = this.waiting.length >= this.enough;
    if (this.timer !== undefined && !full) return;
    this.stopTimer();
    const wait = full ? 0 : this.lastSent + this.linger - monotonic();
    // Not at once: the other callers that are about to run add their items first.
    this.timer = wait > 0 ? setTimeout(() => this.start(), wait) : setImmediate(() => this.start());
  }

  private stopTimer(): void {
    clearTimeout(this.timer as NodeJS.Timeout);
    clearImmediate(this.timer as NodeJS.Immediate);
    this.timer = undefined;
  }

  private mayStart(): boolean {
    if (!this.calls.size) return true;
    if (this.calls.size > 1 || this.waiting.length < this.enough) return false;
    // Items that must not be repeated keep their order, so their calls follow each other.
    return this.unsafe === 0 && ![...this.calls.values()].includes(true);
  }

  private start(): void {
    this.stopTimer();
    if (!this.mayStart()) return;
    const batch: Item[] = [];
    let [taken, size] = [0, 0];
    for (const item of this.waiting) {
      if (batch.length === this.most) break;
      if (!item.signal?.aborted) {
        size += item.words.reduce<number>((sum, word) => sum + (typeof word === "number" ? 0 : word.length), 0);
        if (batch.length && size > BATCH_BYTES) break;
        batch.push(item);
      }
      taken += 1;
      this.unsafe -= Number(!item.repeatable);
    }
    this.waiting = this.waiting.slice(taken);
    if (!batch.length) return;
    this.lastSent = monotonic();
    const call = new Call(this.partition, this.verb, this.fence, this.durability, batch).finish().then(() => {
      this.calls.delete(call);
      this.wake();
    });
    this.calls.set(
      call,
      batch.some((item) => !item.repeatable),
    );
    this.wake();
  }
}

/** A batch that is sent until each of its items has a result. */
class Call {
  private readonly verb: Verb;
  private readonly patience = new Patience();
  private readonly began = monotonic();
  private attempt: Attempt | undefined;
  private repeated = false;

  constructor(
    private readonly partition: Partition,
    private readonly lane: LaneVerb,
    private readonly fence: string,
    private readonly durability: Durability | undefined,
    private batch: Item[],
  ) {
    this.verb = lane === "cancel_dead" ? "cancel" : lane;
  }

  async finish(): Promise<void> {
    try {
      await this.send();
      while (this.batch.length) {
        await this.patience.pause();
        await this.send();
      }
    } catch (error) {
      this.fail(asDueqError(error));
    }
  }

  private async send(): Promise<void> {
    let prefix: string[];
    try {
      prefix = await this.prefix();
    } catch (thrown) {
      const error = asDueqError(thrown);
      if (!this.patience.allows(error)) this.fail(error);
      return;
    }
    const { batch, words } = this.arguments();
    let reply: Reply;
    let texts: string[];
    try {
      reply = await this.partition.call(this.verb, [...prefix, ...words], this.fence, this.durability);
      texts = textsOf(this.verb, reply, batch.length);
    } catch (error) {
      return this.notReplied(asDueqError(error));
    }
    const { missing } = reply;
    const mayRepeat = missing instanceof DueqError && this.patience.allows(missing);
    const again: Item[] = [];
    this.batch = [];
    batch.forEach((item, at) => {
      if (!missing || !isChange(this.verb, texts[at])) this.judge(item, texts[at], reply.header.nowUs);
      else if (mayRepeat && item.repeatable)
        again.push(item); // another master may lack the change
      else item.reject(unconfirmed(this.verb, missing));
    });
    // The items that are left are sent as a new call, unless the wait for some is to be made again.
    if (again.length) this.repeated = true;
    else if (this.batch.length) [this.attempt, this.repeated] = [undefined, false];
    this.batch.push(...again);
  }

  /** What is sent before the items. */
  private async prefix(): Promise<string[]> {
    const { clock } = this.partition;
    if (this.verb === "push" || this.verb === "upsert") {
      if (!this.attempt) {
        await this.partition.learnTime();
        this.attempt = new Attempt(clock);
      }
      return [this.attempt.argument];
    }
    if (this.verb !== "cancel") return [];
    const dead = this.lane === "cancel_dead" ? "1" : "";
    if (!this.repeated) return [dead];
    await this.partition.learnTime(true);
    return [`${dead} since=${Math.floor(clock.earliestUs(this.began) / 1_000)}`.trim()];
  }

  /** The items in the order of sending, and their arguments. An ack names each claim once. */
  private arguments(): { batch: Item[]; words: Word[] } {
    const words: Word[] = [];
    if (this.verb !== "ack") {
      for (const item of this.batch) words.push(...item.words);
      return { batch: this.batch, words };
    }
    const claims = new Map<Word, Item[]>();
    for (const item of this.batch) {
      const [token] = item.words;
      const items = claims.get(token);
      if (items) items.push(item);
      else claims.set(token, [item]);
    }
    for (const [token, items] of claims) {
      words.push(token, items.length);
      for (const item of items) words.push(item.words[1]);
    }
    return { batch: [...claims.values()].flat(), words };
  }

  /** Gives a result to its caller, or keeps the item for a new call. */
  private judge(item: Item, line: string, nowUs: number): void {
    const then = this.attempt ? verdict(line, this.repeated, this.attempt.latestStartUs) : "final";
    if (then === "final") return item.resolve({ text: line, nowUs, repeated: this.repeated });
    if (then === "unknown") {
      const why = `${this.verb} was repeated for up to ${PATIENCE / 1e3} s and its first reply was lost`;
      return item.reject(new DueqError("timeout", "unknown", why));
    }
    const late = new DueqError("timeout", "no", `${this.verb} was too late: the server's clock was set`);
    if (this.patience.allows(late)) this.batch.push(item);
    else item.reject(late);
  }

  private notReplied(error: DueqError): void {
    if (error.isRemapped) {
      const refused = new Refused(this.repeated ? error.ofRepeated() : error);
      for (const item of this.batch.splice(0)) item.reject(refused);
      return;
    }
    const again = this.batch.filter((item) => this.patience.allows(error, item.repeatable));
    this.batch = this.batch.filter((item) => !again.includes(item));
    this.fail(error);
    this.batch = again;
    this.repeated ||= error.applied !== "no";
  }

  private fail(error: DueqError): void {
    const failure = this.repeated ? error.ofRepeated() : error;
    for (const item of this.batch.splice(0)) item.reject(failure);
  }
}

function textsOf(verb: Verb, reply: Reply, items: number): string[] {
  let texts: string[];
  try {
    texts = list(reply.body[0]).map(text);
  } catch {
    throw unexpected(verb, reply.body);
  }
  // One result stands for all items.
  if (texts.length === 1 && (verb === "push" || verb === "ack")) return Array<string>(items).fill(texts[0]);
  if (texts.length !== items) throw unexpected(verb, `${texts.length} results for ${items} items`);
  return texts;
}
