// Recurring work: schedules, whose fires become messages.
import type { Queue } from "./client.js";
import { cut, DueqError, invalid, unexpected } from "./errors.js";
import { milliseconds, unixMs, wordOf, type Bytes, type Milliseconds, type Moment, type OnExpire } from "./model.js";
import { integer, list, text, type Raw } from "./replies.js";
import type { Word } from "./driver.js";

const MOST = 24;
const PAGE = 64;

/** Which of several due fires become ticks, after a time without workers. */
export type MissedPolicy = "one" | "skip" | "all";
/** What a fire does while an earlier tick waits or is leased. */
export type OverlapPolicy = "allow" | "skip" | "replace";
export type ScheduleState = "active" | "paused" | "dry" | "ended";

/** A schedule: its period, its payload and its policies. The server judges the values. */
export interface ScheduleOptions {
  every: Milliseconds;
  payload?: Bytes;
  anchor?: Moment;
  missed?: MissedPolicy;
  /** With `missed: "all"`: the newest so many fires; 1,000 without it. */
  max?: number;
  within?: Milliseconds;
  overlap?: OverlapPolicy;
  jitter?: Milliseconds;
  start?: Moment;
  end?: Moment;
  limit?: number;
  maxAttempts?: number;
  expiresAfter?: Milliseconds;
  onExpire?: OnExpire;
}

/**
 * A period with a name, a payload and policies. Redis makes a *tick* at each fire: a message `NAME@<fire in ms>`.
 * Crons are declared by the program or by Rust, which know the time zones.
 */
export class Schedule {
  /** @internal */
  readonly arguments: readonly Word[];

  constructor(
    readonly name: string,
    options: ScheduleOptions,
  ) {
    const { missed, within, max, overlap, jitter, limit, expiresAfter, onExpire } = options;
    const ms = (time: Milliseconds | undefined) => (time === undefined ? undefined : milliseconds(time));
    const at = (moment: Moment | undefined) => (moment === undefined ? undefined : unixMs(moment));
    const spec = words({
      every: milliseconds(options.every),
      anchor: at(options.anchor),
      // A word that is given with its default value would be a difference to a schedule without it.
      missed: missed === "one" ? undefined : missed,
      within: ms(within),
      max: max === 1_000 ? undefined : max,
      overlap: overlap === "allow" ? undefined : overlap,
      jitter: ms(jitter) || undefined,
      start: at(options.start),
      end: at(options.end),
      limit,
    });
    const own = words({
      max_attempts: options.maxAttempts,
      expires: expiresAfter === undefined ? undefined : `+${milliseconds(expiresAfter)}`,
      on_expire: onExpire === "dead" ? undefined : onExpire,
    });
    this.arguments = [name, spec, "", own, "", wordOf("a payload", options.payload ?? "")];
  }
}

function words(values: Record<string, string | number | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${value}`).join(" ");
}

export interface ScheduleChange {
  readonly name: string;
  /** The next fire, if there is one. */
  readonly nextMs: number | null;
}

/** What an apply did; of a dry run, what it would do. */
export interface ScheduleChanges {
  readonly created: ScheduleChange[];
  readonly changed: ScheduleChange[];
  readonly kept: ScheduleChange[];
  readonly removed: string[];
}

/** A schedule as the queue has it, and what became of its fires. */
export interface ScheduleInfo {
  readonly name: string;
  readonly state: ScheduleState;
  readonly nextMs: number | null;
  readonly made: number;
  readonly missed: number;
  readonly overlapped: number;
  readonly paused: number;
  readonly triggered: number;
  readonly spec: string;
  readonly options: string;
  readonly pattern: string;
}

/** How a set is declared. */
export interface ApplyOptions {
  /** Such as the number of a release. A lower one than the stored one is refused. */
  revision?: number;
  /** Removes the other schedules of the set. */
  prune?: boolean;
  /** Forgets the set and its revision, if it has no schedules then. */
  forget?: boolean;
  /** Makes a tick of each new schedule at once. */
  fireNow?: boolean;
  /** Changes nothing, and answers what would be changed. */
  dryRun?: boolean;
}

/** All schedules of one owner, such as those of a service: `queue.schedules("billing")`. */
export class ScheduleSet {
  /** @internal */
  constructor(
    private readonly queue: Queue,
    readonly name: string,
  ) {}

  /**
   * Creates and changes schedules, up to 24: all of them, or none. One that is the same as before stays as it is.
   * The first apply gives the queue layout 4, which releases before 0.2 refuse.
   */
  async apply(schedules: Iterable<Schedule>, options: ApplyOptions = {}): Promise<ScheduleChanges> {
    const items = [...schedules];
    if (items.length > MOST) {
      throw invalid(`${items.length} schedules: an apply declares up to ${MOST}; make several sets of them`);
    }
    const { prune, forget, fireNow, dryRun, revision } = options;
    const flags = Object.entries({ prune, forget, now: fireNow, dry_run: dryRun }).filter(([, asked]) => asked);
    const head = [this.name, String(revision ?? ""), flags.map(([word]) => word).join(" ")];
    const args = [...head, ...items.flatMap((item) => [...item.arguments])];
    const removed: string[] = [];
    for (;;) {
      const { body } = await this.queue.home.callPatiently("schedule", args);
      const { changes, more } = declared(items, body);
      removed.push(...changes.removed);
      if (!more || dryRun) return { ...changes, removed }; // a call removes up to 24
    }
  }
}

/** One schedule: `queue.schedule("sync")`. */
export class ScheduleHandle {
  /** @internal */
  constructor(
    private readonly queue: Queue,
    readonly name: string,
  ) {}

  async get(): Promise<ScheduleInfo | null> {
    return (await page(this.queue, [this.name])).found[0] ?? null;
  }

  /** Its fires count as paused until `resume`. False if there is no such schedule. */
  pause = (): Promise<boolean> => this.amend("pause");
  resume = (): Promise<boolean> => this.amend("resume");
  /** Removes it; its ticks stay. */
  remove = (): Promise<boolean> => this.amend("remove");

  private async amend(change: string): Promise<boolean> {
    const { body } = await this.queue.home.callPatiently("amend", [change, this.name]);
    return decoded("amend", body, () => text(list(body[0])[0]) !== "GONE");
  }
}

export async function allSchedules(queue: Queue): Promise<ScheduleInfo[]> {
  const all: ScheduleInfo[] = [];
  for (let cursor: Raw = ""; ;) {
    const { next, found }: Page = await page(queue, [cursor as Buffer, PAGE, ""]);
    all.push(...found);
    if (!next.length) return all;
    cursor = next;
  }
}

interface Page {
  readonly next: Buffer | string;
  readonly found: ScheduleInfo[];
}

async function page(queue: Queue, args: readonly Word[]): Promise<Page> {
  const { body } = await queue.home.callPatiently("schedules", args);
  return decoded("schedules", body, () => ({ next: body[0] as Buffer, found: list(body[1]).map(info) }));
}

function info(item: Raw): ScheduleInfo {
  const fields = list(item);
  const state = text(fields[1]) as ScheduleState;
  const [made, missed, overlapped, paused, triggered] = fields.slice(5, 10).map(integer);
  const [spec, options, pattern] = fields.slice(11, 14).map(text);
  const nextMs = state === "active" ? integer(fields[2]) : null;
  return { name: text(fields[0]), state, nextMs, made, missed, overlapped, paused, triggered, spec, options, pattern };
}

function declared(items: readonly Schedule[], body: Raw[]): { changes: ScheduleChanges; more: boolean } {
  return decoded("schedule", body, () => {
    const [word, stored] = cut(text(body[0]), " ");
    if (word === "STALE") throw invalid(`the set has the newer revision ${stored}: nothing was changed`, "STALE");
    const replies = list(body[1]).map((reply, at) => [items[at].name, ...cut(text(reply), " ")] as const);
    if (word === "INVALID") {
      const why = replies
        .filter(([, result]) => result === "INVALID")
        .map(([name, , why]) => `schedule ${name}: ${why}`);
      throw invalid(`${why.join("; ")} (nothing was changed)`);
    }
    const of = (result: string) =>
      replies.filter(([, one]) => one === result).map(([name, , ms]) => ({ name, nextMs: Number(ms) || null }));
    const removed = list(body[2]).map(text);
    const changes = { created: of("CREATED"), changed: of("CHANGED"), kept: of("KEPT"), removed };
    return { changes, more: body[3] === 1 };
  });
}

function decoded<T>(verb: string, body: Raw[], decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw error instanceof DueqError ? error : unexpected(verb, body);
  }
}
