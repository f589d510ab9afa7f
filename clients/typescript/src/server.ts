// One server: its connections, whether it is fit for queues, and the errors of its calls.
import { monotonic } from "./clock.js";
import { RefusedReply, type Connection, type Driver, type Place, type Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, cut, DueqError, invalid, ofReply } from "./errors.js";
import { bytes, readReply, type Raw } from "./replies.js";
import { SCRIPTS, type Verb } from "./scripts.js";

/** How long one command may take before its connection is closed, in milliseconds. */
const RESPONSE_LIMIT = 5_000;

/** By how much a timer that is late tells that this process did not run. */
const STOPPED = 500;

const PLACEHOLDER = `\0${"-".repeat(70)}`;
// A full server accepts a write after one that needs no memory, within one script.
const TOUCH =
  "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then " +
  "redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end";

/** A reply, and what has not confirmed it, or the error of the wait. */
export interface Waited {
  readonly raw: Raw;
  readonly missing: string | DueqError;
}

class NoReply extends Error {}

/** Calls a script by its hash; loads it where the server does not have it. */
async function evaluate(
  send: (words: readonly Word[]) => Promise<Raw>,
  verb: Verb,
  keys: readonly string[],
  args: readonly Word[],
): Promise<Raw> {
  const { sha, text } = SCRIPTS[verb];
  const words = ["EVALSHA", sha, keys.length, ...keys, ...args];
  try {
    return await send(words);
  } catch (error) {
    if (!(error instanceof DueqError && error.code === "NOSCRIPT")) throw error;
  }
  await send(["SCRIPT", "LOAD", text]);
  return send(words);
}

/** A connection that is closed by a command without a reply. */
export class Line {
  isLost = false;
  private readonly ended: ((error: Error) => void)[] = [];
  private connection: Connection | undefined; // while it opens

  static async open(driver: Driver, place: Place): Promise<Line> {
    const line = new Line();
    const opened = driver(place, (error) => line.lose(error)).then((connection) => {
      line.connection = connection;
      if (line.isLost) connection.destroy();
    });
    await line.limited(opened);
    return line;
  }

  private lose(error: Error): void {
    this.isLost = true;
    for (const end of this.ended.splice(0)) end(error);
  }

  /** Calls back once, when the connection ends. */
  onEnd(end: (error: Error) => void): void {
    this.ended.push(end);
  }

  send(words: readonly Word[], longerMs = 0): Promise<Raw> {
    return this.limited(this.connection!.send(words), RESPONSE_LIMIT + longerMs);
  }

  listen(channel: string, heard: (notice: Buffer) => void): Promise<void> {
    return this.limited(this.connection!.listen(channel, heard));
  }

  private limited<T>(reply: Promise<T>, limit = RESPONSE_LIMIT): Promise<T> {
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout;
      const wait = (): void => {
        const end = monotonic() + limit;
        timer = setTimeout(() => {
          // This process did not run, and its server perhaps neither, as when their machine sleeps.
          if (monotonic() > end + STOPPED) return wait();
          reject(new NoReply(`no answer within ${limit / 1e3} s`));
          this.destroy();
        }, limit);
      };
      wait();
      reply.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  destroy(): void {
    if (this.isLost) return;
    this.connection?.destroy();
    this.lose(new Error("it was closed"));
  }
}

/** One server: a connection that all calls share, and one for each call that blocks. */
export class Server {
  private shared: Promise<Line> | undefined;
  private facts: Promise<Map<string, string>> | undefined;
  private readonly canWait = new Set<string>();
  private isChecked = false;
  private isClosed = false;
  private readonly idle: Line[] = [];
  private readonly lines = new Set<Line>();

  /** `locate` says where the server is now: a master that Sentinels watch moves. */
  constructor(
    private readonly driver: Driver,
    private readonly locate: () => Promise<Place>,
    readonly address: string,
  ) {}

  async call(words: readonly Word[], asking = false): Promise<Raw> {
    const line = await this.line();
    if (!this.isChecked) await this.check();
    return this.exchange(line, words, asking);
  }

  run(verb: Verb, keys: readonly string[], args: readonly Word[], asking = false): Promise<Raw> {
    return evaluate((words) => this.call(words, asking), verb, keys, args);
  }

  /**
   * Calls a script, and waits until replicas or disks have it. WAIT counts the writes of its own connection,
   * so a write that changes nothing comes before it: a script that finds its work done writes nothing,
   * and the first caller may have got no confirmation.
   */
  runDurably(
    verb: Verb,
    keys: readonly string[],
    args: readonly Word[],
    durability: Durability,
    asking: boolean,
  ): Promise<Waited> {
    return this.alone(async (line) => {
      if (!this.canWait.has(durability.command)) await this.probe(line, durability);
      const raw = await evaluate((words) => this.exchange(line, words, asking), verb, keys, args);
      // Without a queue there is nothing to lose.
      if (readReply(verb, raw).header.incarnation === "") return { raw, missing: "" };
      try {
        await this.exchange(line, ["EVAL", TOUCH, 1, keys[5], PLACEHOLDER], asking);
        const answer = await this.exchange(line, durability.words(), false, durability.timeoutMs);
        return { raw, missing: durability.shortfall(answer) };
      } catch (error) {
        const missing = asDueqError(error);
        if (missing.code !== "MOVED" && missing.code !== "ASK") return { raw, missing };
        const text = `the keys are at another node now: ${missing.message}`;
        return { raw, missing: new DueqError("unavailable", "unknown", text) };
      }
    });
  }

  /** Refuses a server that cannot wait, before any change. */
  private async probe(line: Line, durability: Durability): Promise<void> {
    try {
      await this.exchange(line, durability.words(true));
      this.canWait.add(durability.command);
    } catch (thrown) {
      const error = asDueqError(thrown);
      const why = /unknown command/i.test(error.detail)
        ? "waiting for disks needs WAITAOF: Redis 7.2 or newer, or Valkey"
        : /appendonly is disabled/i.test(error.detail) && "it keeps no append-only file: CONFIG SET appendonly yes";
      if (!why) throw error.marked("no");
      throw new DueqError("unsupported", "no", `redis at ${this.address} is not fit: ${why}`, { cause: error });
    }
  }

  /** A call that blocks, on a connection of its own, which is closed if the signal is aborted. */
  block(words: readonly Word[], signal: AbortSignal, asking = false): Promise<Raw> {
    return this.alone(async (line) => {
      const close = (): void => line.destroy();
      signal.addEventListener("abort", close);
      try {
        if (signal.aborted) close();
        return await this.exchange(line, words, asking);
      } finally {
        signal.removeEventListener("abort", close);
      }
    });
  }

  /** Uses a connection that no other call has meanwhile. */
  private async alone<T>(use: (line: Line) => Promise<T>): Promise<T> {
    if (!this.isChecked) await this.check();
    const line = this.idle.pop() ?? (await this.open());
    try {
      return await use(line);
    } finally {
      if (!line.isLost) this.idle.push(line);
    }
  }

  /** Passes on what is published to a shard channel, and null once it is subscribed. Ends with the signal. */
  async listen(channel: string, heard: (notice: Buffer | null) => void, signal: AbortSignal): Promise<void> {
    const line = await this.open();
    const close = (): void => line.destroy();
    signal.addEventListener("abort", close);
    const ended = new Promise<Error>((resolve) => line.onEnd(resolve));
    try {
      if (signal.aborted) return;
      await line.listen(channel, heard);
      heard(null);
      const error = await ended;
      if (!signal.aborted) throw error;
    } catch (error) {
      throw this.failed(error);
    } finally {
      signal.removeEventListener("abort", close);
      close();
    }
  }

  /** The fields of INFO, empty without a right to it. Refuses a server that is too old, or that may evict a queue. */
  check(): Promise<Map<string, string>> {
    this.facts ??= this.learn().catch((error: unknown) => {
      this.facts = undefined;
      throw error;
    });
    return this.facts;
  }

  private async learn(): Promise<Map<string, string>> {
    let text = "";
    try {
      text = bytes(await this.exchange(await this.line(), ["INFO", "server", "memory", "cluster"])).toString();
    } catch (error) {
      if (!(error instanceof DueqError)) throw error;
      // Only INFO may have been applied, and the call itself was not sent.
      if (error.applied === "unknown" || error.kind === "unavailable") throw error.marked("no");
      // Redis before 7.0 takes one section.
      if (error.code === "ERR" && error.detail.includes("syntax error")) text = "redis_version:6 or older";
    }
    const facts = new Map(text.split(/\r?\n/).map((line) => cut(line, ":")));
    const version = facts.get("valkey_version") ?? facts.get("redis_version") ?? "7.0";
    const policy = facts.get("maxmemory_policy") ?? "";
    const why =
      parseInt(version) < 7
        ? `it has version ${version}, and dueq needs Redis 7.0 or Valkey 7.2 or newer`
        : policy.startsWith("allkeys") && `its maxmemory-policy ${policy} evicts messages: set noeviction`;
    if (why) throw new DueqError("unsupported", "no", `redis at ${this.address} is refused: ${why}`);
    this.isChecked = true;
    return facts;
  }

  private line(): Promise<Line> {
    if (this.shared) return this.shared;
    const opened = this.open().then((line) => {
      line.onEnd(() => this.forget(opened));
      return line;
    });
    opened.catch(() => this.forget(opened));
    this.shared = opened;
    return opened;
  }

  private forget(line: Promise<Line>): void {
    if (this.shared === line) this.shared = undefined;
  }

  private async open(): Promise<Line> {
    if (this.isClosed) throw invalid("the client is closed: make a new one");
    try {
      const line = await Line.open(this.driver, await this.locate());
      this.lines.add(line);
      line.onEnd(() => {
        this.lines.delete(line);
        const at = this.idle.indexOf(line);
        if (at >= 0) this.idle.splice(at, 1);
      });
      if (this.isClosed) line.destroy();
      return line;
    } catch (error) {
      throw this.unreached(error);
    }
  }

  private async exchange(line: Line, words: readonly Word[], asking = false, longerMs = 0): Promise<Raw> {
    if (line.isLost) throw this.unreached(new Error("the connection was lost"));
    try {
      if (asking) void line.send(["ASKING"]).catch(() => {}); // the call behind it fails too
      return await line.send(words, longerMs);
    } catch (error) {
      const failure = this.failed(error);
      if (failure.code === "READONLY") line.destroy(); // the next connection asks where the master is
      throw failure;
    }
  }

  /** The error of a call that was sent. */
  private failed(error: unknown): DueqError {
    if (error instanceof RefusedReply) return ofReply(this.address, error.message);
    if (error instanceof NoReply) {
      return new DueqError("timeout", "unknown", `redis at ${this.address}: ${error.message}`);
    }
    const text = `the connection to redis at ${this.address} was lost: ${said(error)}`;
    return new DueqError("unavailable", "unknown", text, { cause: error });
  }

  /** The error of a connection that could not be opened: nothing was sent. */
  private unreached(error: unknown): DueqError {
    if (error instanceof DueqError) return error;
    if (error instanceof RefusedReply) return ofReply(this.address, error.message).marked("no");
    const text = `cannot reach redis at ${this.address}: ${said(error)}`;
    return new DueqError("unavailable", "no", text, { cause: error });
  }

  close(): void {
    this.isClosed = true;
    for (const line of [...this.lines]) line.destroy();
  }
}

/** What an error says; one of several addresses has its text in its parts. */
function said(error: unknown): string {
  const errors: unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((one) => (one instanceof Error ? one.message : String(one))).join(", ");
}
