// What must confirm a change before its caller gets a result.
import { invalid } from "./errors.js";
import { milliseconds, within, type Milliseconds } from "./model.js";
import type { Raw } from "./replies.js";

const MAX_TIMEOUT_MS = 60_000;

/**
 * What must confirm pushes, cancels, reschedules and `runNow`: see `Queue.durability`. If fewer confirm within the
 * timeout, the call rejects as `unconfirmed`: the master has made the change and may lose it.
 */
export class Durability {
  private constructor(
    /** @internal */ readonly command: "WAIT" | "WAITAOF",
    private readonly local: boolean,
    private readonly replicas: number,
    /** @internal */ readonly timeoutMs: number,
  ) {
    if (!(Number.isInteger(replicas) && replicas >= 0 && (local || replicas))) {
      throw invalid(`a durability with ${replicas} replicas waits for nothing`);
    }
    within("the timeout", timeoutMs, MAX_TIMEOUT_MS);
  }

  /** The memory of so many replicas (WAIT), within 1 ms to a minute. */
  static replicated(replicas: number, timeout: Milliseconds): Durability {
    return new Durability("WAIT", false, replicas, milliseconds(timeout));
  }

  /** The disk of the master if `local`, and those of so many replicas (WAITAOF of Redis 7.2 and Valkey). */
  static fsynced(options: { local: boolean; replicas?: number; timeout: Milliseconds }): Durability {
    return new Durability("WAITAOF", options.local, options.replicas ?? 0, milliseconds(options.timeout));
  }

  /** @internal The command that waits; as a probe it only finds out whether the server can wait. */
  words(isProbe = false): (string | number)[] {
    const times = isProbe ? [0, 1] : [this.replicas, this.timeoutMs];
    return [this.command, ...(this.command === "WAITAOF" ? [Number(this.local)] : []), ...times];
  }

  /** @internal What has not confirmed, by the answer to the command; empty if nothing is missing. */
  shortfall(answer: Raw): string {
    const [own, others] = Array.isArray(answer) ? answer : [1, answer];
    if (typeof own !== "number" || typeof others !== "number") return `${this.command} answered ${String(answer)}`;
    const missing = [
      ...(this.local && own < 1 ? ["the master's disk did not confirm it"] : []),
      ...(others < this.replicas ? [`only ${others} of ${this.replicas} replicas confirmed it`] : []),
    ];
    return missing.length ? `${missing.join(" and ")} within ${this.timeoutMs} ms` : "";
  }
}
