// Decodes the replies of scripts, and the results of their items.
import { cut, DueqError, invalid, unexpected } from "./errors.js";
import { isTraceParent, shown, type EndKind, type MessageEnd, type MessageState, type StoredMessage } from "./model.js";

/** What a driver returns for a reply of RESP. */
export type Raw = number | string | Buffer | null | Raw[];

/** The first element of every reply. A `headMs` or `deadlineMs` of null: nothing is scheduled or leased. */
export interface Header {
  readonly nowUs: number;
  readonly incarnation: string;
  readonly seq: number;
  readonly headMs: number | null;
  readonly deadlineMs: number | null;
  readonly paused: boolean;
  readonly epoch: number | null;
}

/** A reply, and between which times of the monotonic clock the call was made. */
export interface Reply {
  readonly header: Header;
  readonly body: Raw[];
  readonly sent: number;
  readonly received: number;
  /** Which replicas or disks have not confirmed it, or the error of the wait for them. */
  readonly missing: string | DueqError;
}

export function readReply(verb: string, raw: Raw, sent = 0, received = 0, missing: string | DueqError = ""): Reply {
  return guarded(verb, raw, () => {
    const [head, ...body] = list(raw);
    const [nowUs, incarnation, seq, headMs, deadlineMs, paused, epoch] = list(head);
    const header = {
      nowUs: integer(nowUs),
      incarnation: text(incarnation),
      seq: integer(seq),
      headMs: time(integer(headMs)),
      deadlineMs: time(integer(deadlineMs)),
      paused: integer(paused) !== 0,
      epoch: epoch === undefined ? null : integer(epoch),
    };
    return { header, body, sent, received, missing };
  });
}

function guarded<T>(verb: string, raw: Raw, decode: () => T): T {
  try {
    return decode();
  } catch {
    throw unexpected(verb, raw);
  }
}

export function list(raw: Raw | undefined): Raw[] {
  if (!Array.isArray(raw)) throw new TypeError("no array");
  return raw;
}

export function integer(raw: Raw | undefined): number {
  if (typeof raw !== "number") throw new TypeError("no integer");
  return raw;
}

export function bytes(raw: Raw | undefined): Buffer {
  if (Buffer.isBuffer(raw)) return raw;
  if (typeof raw === "string") return Buffer.from(raw);
  throw new TypeError("no string");
}

export const text = (raw: Raw | undefined): string => bytes(raw).toString();

/** A negative time other than -1 was not written by dueq: it counts as past, so that due work is not missed. */
function time(ms: number): number | null {
  return ms === -1 ? null : Math.max(ms, 0);
}

/** A message that a claim granted. */
export interface Granted {
  readonly id: Buffer;
  readonly payload: Buffer;
  readonly dueMs: number;
  readonly attempt: number;
  readonly crashes: number;
  readonly isLastAttempt: boolean;
  readonly traceParent: string | null;
  readonly expiresAtMs: number | null;
  readonly cost: number;
  readonly snoozes: number;
  readonly isTick: boolean;
}

/** The number of ready messages that the claim left, and what it granted. */
export function claim(reply: Reply): { left: number; granted: Granted[] } {
  return guarded("claim", reply.body, () => {
    const [left, , ids, payloads, details, limit] = reply.body;
    const count = list(ids).length;
    const all = list(details).length === 1 ? Array<Raw>(count).fill(list(details)[0]) : list(details);
    if (list(payloads).length !== count || all.length !== count) throw new TypeError("lists of several lengths");
    const most = typeof limit === "number" ? limit : undefined;
    const granted = list(ids).map((id, at) => grant(bytes(id), bytes(list(payloads)[at]), text(all[at]), most));
    return { left: integer(left), granted };
  });
}

function grant(id: Buffer, payload: Buffer, detail: string, queueLimit: number | undefined): Granted {
  const [due, rest] = cut(detail, " ");
  const [tries, options] = cut(rest, " ");
  const [dueMs, attempt] = [whole(due), whole(tries)];
  const found = options ? words(options) : NO_WORDS;
  const crashes = number(found, "crashes", 0);
  const limit = number(found, "max_attempts", queueLimit ?? 0);
  const parent = found.get("traceparent") ?? "";
  return {
    id,
    payload,
    dueMs,
    attempt,
    crashes,
    isLastAttempt: limit > 0 && limit <= Math.max(attempt - 1 - crashes, 0) + 1,
    // Handlers copy it into HTTP headers, so a malformed one is left out.
    traceParent: isTraceParent(parent) ? parent : null,
    expiresAtMs: expiry(found, dueMs),
    cost: number(found, "cost", 1),
    snoozes: number(found, "snoozes", 0),
    isTick: found.has("tick"),
  };
}

function whole(word: string): number {
  if (!/^-?\d+$/.test(word)) throw new TypeError("no number");
  return Number(word);
}

const NO_WORDS = new Map<string, string>();

function words(options: string): Map<string, string> {
  return new Map(options.split(" ").map((word) => cut(word, "=")));
}

const isNumber = (word: string): boolean => /^\d+$/.test(word);

function number(found: Map<string, string>, name: string, missing: number): number {
  const value = found.get(name) ?? "";
  return isNumber(value) ? Number(value) : missing;
}

function expiry(found: Map<string, string>, dueMs: number): number | null {
  const by = number(found, "expires_by", 0);
  if (by) return by;
  const expires = found.get("expires") ?? "";
  if (expires.startsWith("+") && isNumber(expires.slice(1))) return dueMs + Number(expires);
  return isNumber(expires) ? Number(expires) : null;
}

const STATES = new Set(["scheduled", "ready", "leased", "dead"]);
const ENDS = new Set(["finished", "expired", "cancelled"]);

function known<T extends string>(values: Set<string>, word: string): T {
  if (!values.has(word)) throw new TypeError("an unknown word");
  return word as T;
}

/** What `get` knows of an id: the message, or how it ended. */
export type Known = { stored: StoredMessage } | { end: MessageEnd } | null;

export function get(reply: Reply, id: Buffer): Known {
  return guarded("get", reply.body, () => {
    const [pairs, how, when, until] = reply.body;
    if (!list(pairs).length) {
      if (how === undefined) return null;
      const kind = known<EndKind>(ENDS, text(how));
      return { end: { kind, endedAtMs: integer(when), rememberedUntilMs: integer(until) || null } };
    }
    const flat = list(pairs);
    const fields = new Map(flat.flatMap((name, at) => (at % 2 ? [] : [[text(name), flat[at + 1]] as const])));
    const found = words(text(fields.get("options")));
    const next = fields.get("next_due");
    const stored = {
      id: shown(id),
      state: known<MessageState>(STATES, text(fields.get("state"))),
      timeMs: integer(fields.get("time_ms")),
      failures: integer(fields.get("failures")),
      crashes: integer(fields.get("crashes")),
      maxAttempts: number(found, "max_attempts", 0) || null,
      cost: number(found, "cost", 1),
      error: text(fields.get("error")),
      payload: bytes(fields.get("payload")),
      nextDueMs: next === undefined ? null : integer(next),
    };
    return { stored };
  });
}

/** A decoded item result: its outcome, and its time or state if it has one. */
export interface Result {
  readonly outcome: string;
  readonly ms?: number;
  readonly state?: MessageState;
}

type Words = Record<string, string>;
const PLAIN: Words = { LEASED: "leased", DEAD: "dead", ABSENT: "absent" };
const LOST: Words = { GONE: "gone", LOST: "lost" };
const PUSH: Words = {
  CREATED: "created",
  EXISTS: "exists",
  MOVED: "moved",
  NEXT: "next",
  REMEMBERED: "remembered",
  FINISHED: "finished",
  USED: "finished",
};
const DONE: Words = { OK: "done", ...LOST };
const UNTIL: Words = { OK: "until", ...LOST };
const RETRY: Words = { SCHEDULED: "scheduled", DEAD: "dead", DROPPED: "dropped", ...LOST };
// By verb: its words, each with its outcome, and those that have a time behind them.
const RESULTS: Record<string, { outcomes: Words; timed?: readonly string[] }> = {
  push: { outcomes: PUSH, timed: ["REMEMBERED"] },
  upsert: { outcomes: PUSH, timed: ["REMEMBERED"] },
  ack_push: { outcomes: PUSH, timed: ["REMEMBERED"] },
  cancel: { outcomes: { CANCELLED: "cancelled", ...PLAIN } },
  reschedule: { outcomes: { MOVED: "moved", CONFLICT: "conflict", ...PLAIN }, timed: ["MOVED", "CONFLICT"] },
  run_now: { outcomes: { MOVED: "moved", ALREADY: "already", ...PLAIN } },
  ack: { outcomes: DONE },
  again: { outcomes: DONE },
  release: { outcomes: DONE },
  bury: { outcomes: DONE },
  retry: { outcomes: RETRY, timed: ["SCHEDULED"] },
  snooze: { outcomes: RETRY, timed: ["SCHEDULED"] },
  throttle: { outcomes: UNTIL, timed: ["OK"] },
  extend: { outcomes: UNTIL, timed: ["OK"] },
};

/** Decodes the result of one item, such as `EXISTS scheduled`. Throws if the item was refused. */
export function result(verb: string, line: string): Result {
  const [word, detail] = cut(line, " ");
  const { outcomes, timed } = RESULTS[verb];
  const outcome = Object.hasOwn(outcomes, word) ? outcomes[word] : undefined;
  if (outcome === undefined) throw refusal(verb, word, detail);
  if (timed?.includes(word)) {
    if (!isNumber(detail)) throw unexpected(verb, line);
    return { outcome, ms: Number(detail) };
  }
  if (outcome === "exists") {
    if (!STATES.has(detail)) throw unexpected(verb, line);
    return { outcome, state: detail as MessageState };
  }
  return { outcome: word === "CANCELLED" && detail === "next" ? "next" : outcome };
}

const CHANGES: Record<string, readonly string[]> = {
  push: ["CREATED", "EXISTS", "MOVED", "NEXT"],
  upsert: ["CREATED", "EXISTS", "MOVED", "NEXT"],
  cancel: ["CANCELLED"],
  reschedule: ["MOVED"],
  run_now: ["MOVED", "ALREADY"],
};

/** Whether replicas or disks must confirm before the caller gets this result, also of a change made before. */
export function isChange(verb: string, line: string): boolean {
  return CHANGES[verb].includes(cut(line, " ")[0]);
}

function refusal(verb: string, word: string, detail: string): DueqError {
  if (word === "INVALID") return invalid(detail, detail.startsWith("payload has ") ? "TOO_LARGE" : undefined);
  if (word === "FULL") {
    const what = detail.startsWith("this queue may remember") ? "push with shorter windows" : "work it off";
    return new DueqError("full", "no", `FULL: ${detail}; ${what}, or raise the limit: dueq configure QUEUE`);
  }
  return unexpected(verb, `${word} ${detail}`);
}

/** What becomes of the result of a push: `final`, sent `again` as a new call, or `unknown`. */
export function verdict(line: string, repeated: boolean, latestStartUs: number): "final" | "again" | "unknown" {
  const [word, detail] = cut(line, " ");
  if (word !== "FINISHED" && word !== "EXPIRED") return "final";
  // The estimate of the server's clock was wrong, or another client changed a message of this id meanwhile.
  if (!repeated) return "again";
  if (word === "EXPIRED") return "unknown";
  const [, ms, us] = /^(\d+)\.(\d+)$/.exec(detail) ?? [];
  return ms !== undefined && Number(ms) * 1_000 + Number(us) <= latestStartUs ? "unknown" : "final";
}
