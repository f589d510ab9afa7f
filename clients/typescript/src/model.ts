// Messages, and the results of calls. Expected outcomes are values, not errors.
import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { crc32 } from "node:zlib";
import type { Word } from "./driver.js";
import { invalid } from "./errors.js";

/** A duration in milliseconds, as everywhere in JavaScript. A fraction is rounded up, so that nothing is early. */
export type Milliseconds = number;
/** A moment: a `Date`, or Unix milliseconds of the server. */
export type Moment = Date | number;
/** Text is sent as UTF-8. */
export type Bytes = string | Uint8Array;

/** Where a message is in its life. */
export type MessageState = "scheduled" | "ready" | "leased" | "dead";
/**
 * What a push does if its id waits already.
 *
 * - `keep`: the push changes nothing
 * - `reschedule`: the message gets the due time of the push
 * - `replace`: the message gets the due time, the payload and the options of the push
 * - `next`: as `replace`; of a message that a handler has, the new one follows its delivery
 */
export type OnConflict = (typeof CONFLICTS)[number];
/** What becomes of a message that expires. */
export type OnExpire = "dead" | "drop";
/**
 * - `exists`: the id is in the queue; nothing was changed. A repeated push has this outcome
 * - `remembered`: a window remembers the id; nothing was stored
 * - `finished`: an earlier try of this call was applied, and the message has ended since
 */
export type PushOutcome = "created" | "exists" | "moved" | "next" | "remembered" | "finished";
/** `next`: a handler has the message; the message that should follow it is gone. */
export type CancelOutcome = "cancelled" | "next" | "leased" | "dead" | "absent";
export type RescheduleOutcome = "moved" | "conflict" | "leased" | "dead" | "absent";
export type RunNowOutcome = "moved" | "already" | "leased" | "dead" | "absent";
export type EndKind = "finished" | "expired" | "cancelled";

/** What a push did. */
export interface Receipt {
  readonly id: string;
  readonly outcome: PushOutcome;
  /** Whether the outcome is `created`. */
  readonly created: boolean;
  /** With `exists`: the state of the message that has the id. */
  readonly state?: MessageState;
  /** With `remembered`: the end of the window, in Unix milliseconds. */
  readonly untilMs?: number;
}

export interface Rescheduled {
  readonly outcome: RescheduleOutcome;
  readonly dueMs?: number;
}

/** A message as the queue has it. */
export interface StoredMessage {
  readonly id: string;
  readonly state: MessageState;
  /** When it is due; of a leased message when its lease ends; of a dead one when it died. */
  readonly timeMs: number;
  readonly failures: number;
  readonly crashes: number;
  readonly maxAttempts: number | null;
  readonly cost: number;
  readonly error: string;
  readonly payload: Buffer;
  readonly nextDueMs: number | null;
}

/** How the message of a remembered id ended. */
export interface MessageEnd {
  readonly kind: EndKind;
  readonly endedAtMs: number;
  readonly rememberedUntilMs: number | null;
}

/** The options of a message. */
export interface Options {
  /** 1 to 200 bytes without control bytes. Without one the library makes one. */
  id?: Bytes;
  /** The message is due this long after the server has it. */
  delay?: Milliseconds;
  /** The message is due at this moment. */
  due?: Moment;
  /** The message is due up to this much later, by its id: for many messages of one due time. */
  spread?: Milliseconds;
  /** After how many failed attempts the message is dead; without it the queue's limit, which is 20 by default. */
  maxAttempts?: number;
  /** What the push does if a message of this id waits already; `keep` without it. */
  onConflict?: OnConflict;
  /** The W3C traceparent of the push, which the handler gets. */
  traceParent?: string;
  /** No attempt starts later than this after the due time. */
  expiresAfter?: Milliseconds;
  /** No attempt starts after this moment. */
  expiresAt?: Moment;
  /** What becomes of a message that expires; `dead` without it. */
  onExpire?: OnExpire;
  /** How much of the queue's rate each attempt uses; 1 without it. */
  cost?: number;
  /** For this long from the push, no other push stores a message of this id; 30 days at most. */
  window?: Milliseconds;
  /** Stores the message although the window of an earlier push remembers its id. */
  reuse?: boolean;
  /** How far later pushes of this id can postpone the message, from its first push on. */
  maxWait?: Milliseconds;
  /** Replaces a dead message of this id too; with `replace` or `next`. */
  revive?: boolean;
  /** Stores the message only if nothing happened to its id since a cancel at this server time, at most 12 s ago. */
  undoMs?: number;
}

const MAX_DELAY_MS = 3_155_760_000_000; // 100 years
const MAX_WINDOW_MS = 2_592_000_000; // 30 days
const MAX_PAYLOAD_BYTES = 16 * 1024 * 1024;
const CONFLICTS = ["keep", "reschedule", "replace", "next"] as const;
const OPTIONS = new Set(
  (
    "id delay due spread maxAttempts onConflict traceParent expiresAfter expiresAt onExpire cost window reuse " +
    "maxWait revive undoMs"
  ).split(" "),
);
/** In the bytes of an id, each taken as a character. */
const CONTROL = /[\x00-\x1f\x7f]/;
/** A lone surrogate, which stands for a byte that is no UTF-8. */
const LONE = /[\udc80-\udcff]/u;
const TRACE_PARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** A message to push: its payload, and its options. It is checked here, before anything is sent. */
export class Message {
  readonly id: Buffer;
  readonly onConflict: OnConflict;
  /** @internal Whether a second try of its push is harmless. */
  readonly repeatable: boolean;
  /** @internal */
  readonly arguments: readonly [Word, string, Word, string];

  constructor(
    readonly payload: Bytes,
    private readonly given: Options = {},
  ) {
    for (const name in given)
      if (!OPTIONS.has(name)) throw invalid(`a message has no option ${name}: \`Options\` lists them`);
    const sent = wordOf("a payload", payload);
    const size = Buffer.byteLength(sent);
    if (size > MAX_PAYLOAD_BYTES) {
      const text = `the payload has ${size} bytes, no queue takes more than ${MAX_PAYLOAD_BYTES}`;
      throw invalid(text, "TOO_LARGE");
    }
    const id = given.id ?? newId();
    this.id = checkedId(id);
    this.onConflict = oneOf("onConflict", CONFLICTS, given.onConflict ?? "keep");
    // A repeated push with `next` changes nothing if the first one was applied.
    this.repeatable = this.onConflict === "keep" || this.onConflict === "next";
    const due = spread(dueWord(given.delay, given.due), given.spread, this.id);
    this.arguments = [wordOf("an id", id), due, sent, words(given, this.onConflict, due).join(" ")];
  }

  /** @internal This message with this id, unless its producer has given it one. */
  named(id: Buffer): Message {
    return this.given.id === undefined ? new Message(this.payload, { ...this.given, id }) : this;
  }
}

function words(given: Options, onConflict: OnConflict, due: string): string[] {
  const found: string[] = [];
  const { maxAttempts, traceParent, expiresAfter, expiresAt, cost, window, maxWait, undoMs } = given;
  if (maxAttempts !== undefined) found.push(`max_attempts=${within("maxAttempts", maxAttempts, 1_000_000)}`);
  if (onConflict !== "keep") found.push(`on_conflict=${onConflict}`);
  if (traceParent !== undefined) {
    if (!isTraceParent(traceParent)) throw invalid("traceParent is not a W3C traceparent of version 00");
    found.push(`traceparent=${traceParent}`);
  }
  if (expiresAfter !== undefined && expiresAt !== undefined) {
    throw invalid("a message has expiresAfter or expiresAt, not both");
  }
  if (expiresAfter !== undefined) {
    found.push(`expires=+${within("expiresAfter", milliseconds(expiresAfter), MAX_DELAY_MS)}`);
  } else if (expiresAt !== undefined) {
    found.push(`expires=${unixMs(expiresAt)}`);
  }
  if (oneOf("onExpire", ["dead", "drop"], given.onExpire ?? "dead") === "drop") {
    if (expiresAfter === undefined && expiresAt === undefined) {
      throw invalid("onExpire is set and the message does not expire: set expiresAfter or expiresAt too");
    }
    found.push("on_expire=drop");
  }
  // The default 1 is left out: a stored option takes memory.
  if (cost !== undefined && within("cost", cost, 1_000_000) !== 1) found.push(`cost=${cost}`);
  if (window !== undefined) found.push(`window=${within("window", milliseconds(window), MAX_WINDOW_MS)}`);
  if (maxWait !== undefined) {
    const wait = within("maxWait", milliseconds(maxWait), MAX_DELAY_MS);
    if (onConflict === "keep") throw invalid("maxWait needs an onConflict other than keep");
    if (due.startsWith("+") && Number(due) > wait) throw invalid("the delay is longer than maxWait");
    found.push(`max_wait=${wait}`);
  }
  if (given.reuse) found.push("reuse");
  if (given.revive) {
    if (onConflict !== "replace" && onConflict !== "next") throw invalid("revive needs onConflict replace or next");
    found.push("revive");
  }
  if (undoMs !== undefined) found.push(`undo=${undoMs}`);
  return found;
}

function oneOf<T extends string>(name: string, values: readonly T[], value: T): T {
  if (!values.includes(value)) throw invalid(`${name} is ${value}, it must be one of ${values.join(", ")}`);
  return value;
}

export function within(name: string, number: number, most: number): number {
  if (Number.isInteger(number) && number >= 1 && number <= most) return number;
  throw invalid(`${name} is ${number}, it must be a whole number from 1 to ${most}`);
}

/** Rounded up to whole milliseconds, so that nothing is early. */
export function milliseconds(time: Milliseconds): number {
  if (typeof time !== "number") throw invalid(`a time is a number of milliseconds, not ${kindOf(time)}`);
  if (!(time >= 0 && time < 1e15)) throw invalid(`a time is 0 ms to 100 years, not ${time} ms`);
  // A sum such as 0.1 + 0.2 has a little too much: less than a microsecond is its own inexactness.
  return Math.ceil(Math.round(time * 1_000) / 1_000);
}

export function unixMs(moment: Moment): number {
  const ms = moment instanceof Date ? moment.getTime() : moment;
  if (!(Number.isInteger(ms) && ms >= 0 && ms < 1e15)) {
    throw invalid(`a moment is a Date or whole Unix milliseconds, not ${String(moment)}`);
  }
  return ms;
}

/** The due time as the scripts read it: `+MS` or Unix milliseconds. */
export function dueWord(delay: Milliseconds | undefined, due: Moment | undefined): string {
  if (due === undefined) {
    const ms = milliseconds(delay ?? 0);
    if (ms > MAX_DELAY_MS) throw invalid(`the delay is ${ms} ms, it must be 0 to ${MAX_DELAY_MS} (100 years)`);
    return `+${ms}`;
  }
  if (delay !== undefined) throw invalid("a message has a delay or a due time, not both");
  return String(unixMs(due));
}

/** Adds a part of the window that depends on the id alone, so that a repetition asks for the same time. */
function spread(due: string, window: Milliseconds | undefined, id: Buffer): string {
  if (window === undefined) return due;
  const later = crc32(id, crc32("spread")) % (milliseconds(window) + 1);
  return `${due.startsWith("+") ? "+" : ""}${Number(due) + later}`;
}

export function isTraceParent(text: string): boolean {
  return TRACE_PARENT.test(text);
}

function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/** The bytes of a text. A lone surrogate from U+DC80 on is the byte that `shown` could not decode. */
export function encoded(what: string, text: Bytes): Buffer {
  if (text instanceof Uint8Array) return Buffer.isBuffer(text) ? text : Buffer.from(text);
  if (typeof text !== "string") {
    throw invalid(`${what} is a string or a Uint8Array, not ${kindOf(text)}: encode it, such as by JSON.stringify`);
  }
  if (!LONE.test(text)) return Buffer.from(text);
  const parts = Array.from(text, (one) => (LONE.test(one) ? Buffer.of(one.charCodeAt(0) - 0xdc00) : Buffer.from(one)));
  return Buffer.concat(parts);
}

/** The same bytes as a word of a call. Clients of Redis send a text faster than a buffer. */
export function wordOf(what: string, text: Bytes): Exclude<Word, number> {
  return typeof text === "string" && !LONE.test(text) ? text : encoded(what, text);
}

/** An id as text. `encoded` gives the same bytes back, also if they are no UTF-8. */
export function shown(id: Buffer): string {
  if (isUtf8(id)) return id.toString();
  let text = "";
  for (let at = 0; at < id.length;) {
    const length = [1, 2, 3, 4].find((count) => at + count <= id.length && isUtf8(id.subarray(at, at + count)));
    text += length ? id.toString("utf8", at, at + length) : String.fromCharCode(0xdc00 + id[at]);
    at += length ?? 1;
  }
  return text;
}

export function checkedId(id: Bytes): Buffer {
  const raw = encoded("an id", id);
  if (raw.length < 1 || raw.length > 200 || CONTROL.test(raw.toString("latin1"))) {
    const start = JSON.stringify(shown(raw.subarray(0, 40)));
    const rule = "an id has 1 to 200 bytes, none of them a control byte";
    throw invalid(`message id ${start} of ${raw.length} bytes: ${rule}`);
  }
  return raw;
}

let newest = { ms: 0, text: "", ids: 0 };

/**
 * An id that no other message has: the time, a number within it, and random digits. Ids made later sort later. Redis is
 * quicker with such ids, and with those of at most 30 bytes, which fit 32 with its own two.
 */
function newId(): string {
  const ms = Date.now();
  if (ms > newest.ms) newest = { ms, text: ms.toString(16), ids: 0 };
  newest.ids += 1;
  const random = randomUUID(); // faster than randomBytes, which it collects
  return newest.text + newest.ids.toString(36).padStart(3, "0") + random.slice(0, 4) + random.slice(-12);
}
