// The one error type: what failed, whether to try again, and whether the call took effect.

/**
 * What went wrong.
 *
 * - `invalid_input`: a name, id, payload, time or option is out of its range, or the client is used wrongly
 * - `unavailable`: the server cannot be reached, or does not serve calls now
 * - `timeout`: no reply came in time
 * - `unconfirmed`: the master has made the change, and too few replicas or disks have confirmed it
 * - `full`: the queue's limit of messages, or the server's memory, is reached
 * - `denied`: the user or password is wrong, or the user lacks a right
 * - `unsupported`: the server is too old or may evict keys, or the queue has an unknown layout
 * - `server`: the server replied with another error, or with something that is not the protocol
 * - `internal`: a defect of this library
 */
export type ErrorKind =
  | "invalid_input"
  | "unavailable"
  | "timeout"
  | "unconfirmed"
  | "full"
  | "denied"
  | "unsupported"
  | "server"
  | "internal";

/**
 * Whether a failed call took effect. `unknown`: the reply was lost. `Queue.get` shows what the queue has,
 * or repeat the call if that is harmless.
 */
export type Applied = "no" | "yes" | "unknown";

interface Facts {
  /** The code of the server's error, such as `NOPERM`, or `TOO_LARGE` for a payload above the limit. */
  code?: string;
  /** What the server said after the code. */
  detail?: string;
  /** The id of the message, if it may have been stored. */
  id?: string;
  cause?: unknown;
}

/** The error of any call. */
export class DueqError extends Error {
  override readonly name = "DueqError";
  readonly code: string | undefined;
  readonly detail: string;
  readonly id: string | undefined;

  constructor(
    readonly kind: ErrorKind,
    readonly applied: Applied,
    message: string,
    facts: Facts = {},
  ) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.code = facts.code;
    this.detail = facts.detail ?? "";
    this.id = facts.id;
  }

  /** Whether the same call may succeed later. `applied` says whether repeating it is harmless. */
  get retryable(): boolean {
    return ["unavailable", "timeout", "unconfirmed", "full"].includes(this.kind);
  }

  /** @internal Whether the partition has another map than the caller. */
  get isRemapped(): boolean {
    return this.code === "REMAPPED" || this.code === "BEHIND";
  }

  /** @internal This error with another `applied`, the id of its message, or a note at the end of its text. */
  marked(applied: Applied, { id = this.id, note = "" } = {}): DueqError {
    const { code, detail, cause } = this;
    return new DueqError(this.kind, applied, this.message + note, { code, detail, id, cause });
  }

  /** @internal This error as that of a call whose earlier try may have been applied. */
  ofRepeated(): DueqError {
    if (this.applied === "unknown") return this;
    return this.marked("unknown", { note: " (an earlier try may have taken effect)" });
  }

  /** @internal A copy for the caller of one message, with its id unless the call was not applied. */
  ofMessage(id: string): DueqError {
    return this.marked(this.applied, { id: this.applied === "no" ? undefined : id });
  }
}

export function invalid(text: string, code?: string): DueqError {
  return new DueqError("invalid_input", "no", text, { code });
}

export function unconfirmed(verb: string, missing: string | DueqError): DueqError {
  const why = typeof missing === "string" ? missing : `the wait for it failed: ${missing.message}`;
  const text = `${verb}: the master has done it, but ${why}; a failover may undo it: the same call again waits again`;
  return new DueqError("unconfirmed", "yes", text);
}

export function unexpected(verb: string, what: unknown): DueqError {
  const shown = String(Array.isArray(what) ? JSON.stringify(what) : what).slice(0, 200);
  const text = `the reply to ${verb} is not the protocol: ${shown} (\`dueq doctor QUEUE\` finds why)`;
  return new DueqError("server", "unknown", text);
}

/** The error behind anything that was thrown. */
export function asDueqError(error: unknown): DueqError {
  if (error instanceof DueqError) return error;
  return new DueqError("internal", "unknown", `a defect of this library: ${String(error)}`, { cause: error });
}

const REFUSED_FOR_NOW = new Set(
  "LOADING BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY ASK MISCONF NOREPLICAS NOSCRIPT REMAPPED BEHIND".split(" "),
);
const KINDS: Record<string, ErrorKind> = {
  MOVED: "unsupported",
  OOM: "full",
  NOAUTH: "denied",
  WRONGPASS: "denied",
  NOPERM: "denied",
  LAYOUT: "unsupported",
  BADARGS: "invalid_input",
  HELD: "invalid_input",
};
// Scripts read each key before they write, so these come before the first write.
const BEFORE_WRITES = new Set(["BADKEYS", "BADNOW", "WRONGTYPE"]);
const CREDENTIALS = "give user and password in the URL: redis://USER:PASSWORD@HOST/";
const HINTS: Record<string, string> = {
  OOM: "its memory is full: raise maxmemory; workers drain it meanwhile",
  NOAUTH: CREDENTIALS,
  WRONGPASS: CREDENTIALS,
  MISCONF: "it cannot persist: look at its log and disk",
  WRONGTYPE: "another program uses a key of this queue: `dueq doctor QUEUE` names it",
  READONLY: "it is a replica: redis-cli ROLE names its master",
  CLUSTERDOWN: "it reaches no majority of masters, or slots are served by none: redis-cli CLUSTER NODES",
  NOREPLICAS: "too few replicas follow it: redis-cli INFO replication",
  BUSY: "a script runs for long: redis-cli SCRIPT KILL, or FUNCTION KILL, ends it",
  MOVED: "the queue is on another node of this cluster: connect with redis+cluster://",
  LAYOUT: "install a newer version of this package",
  NOPERM: "give the user the rights that `dueq acl ROLE QUEUE` lists",
};

/** The error for an error reply such as `LAYOUT this queue has layout 5`. */
export function ofReply(address: string, text: string): DueqError {
  const [code, detail] = cut(text, " ");
  // Redis does not roll back a script that fails, and names the script in the text.
  const inScript = detail.includes("script: ");
  const lacksRight = code === "ERR" && /^(The user executing the script |ACL failure in script: )/.test(detail);
  const deniedInScript = inScript && (code === "NOPERM" || lacksRight);
  let kind: ErrorKind = KINDS[code] ?? "server";
  let applied: Applied = "no";
  if (deniedInScript) {
    [kind, applied] = ["denied", "unknown"];
  } else if (REFUSED_FOR_NOW.has(code) || (code === "ERR" && detail.startsWith("max number of clients"))) {
    kind = "unavailable";
  } else if (code === "UNBLOCKED") {
    // The server became a replica while the call was blocked.
    [kind, applied] = ["unavailable", "unknown"];
  } else if (kind === "server" && inScript && !BEFORE_WRITES.has(code)) {
    applied = "unknown";
  }
  const hint = deniedInScript ? HINTS.NOPERM : HINTS[code];
  const did = applied === "no" ? "refused" : "stopped halfway";
  const message = `redis at ${address} ${did}: ${text}${hint ? ` (${hint})` : ""}`;
  return new DueqError(kind, applied, message, { code, detail });
}

/** The text before the first separator, and the text after it. */
export function cut(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + separator.length)];
}
