// A delivery in the hands of a handler: its lease, and how the handler is asked to stop.
import { Delivery } from "./delivery.js";
import type { Partition } from "./partition.js";
import type { Granted } from "./replies.js";
import { pause } from "./waiting.js";

/** How long a handler whose signal is aborted may clean up, in milliseconds. */
export const CLEANUP = 2_000;

/** Runs a handler. One that outlives its time limit is asked to stop, and is no longer waited for after 2 s. */
export function limited(all: readonly Held[], limitMs: number | undefined, run: () => unknown): unknown {
  if (limitMs === undefined) return run();
  const running = (async () => run())();
  const late = new Error(`the time limit of ${limitMs} ms has passed`);
  late.name = "TimeoutError";
  const ended = new AbortController();
  const limit = (async () => {
    await pause(limitMs, ended.signal);
    if (ended.signal.aborted) return;
    for (const held of all) held.abort(late);
    await Promise.race([running.catch(() => {}), pause(CLEANUP, ended.signal)]);
    throw late;
  })();
  return Promise.race([running, limit]).finally(() => ended.abort());
}

/** A delivery whose handler runs. Times are of the monotonic clock. */
export class Held {
  readonly delivery: Delivery;
  isLost = false;
  private controller: AbortController | undefined;
  private reason: Error | undefined;
  /** Ends when the handler and its settlement have ended. */
  ended!: Promise<void>;

  constructor(
    queue: string,
    readonly granted: Granted,
    readonly token: Buffer,
    readonly partition: Partition,
    /** Until when the lease runs at least. */
    public expires: number,
    public extendAt: number,
  ) {
    this.delivery = new Delivery(queue, granted, token, this);
  }

  get id(): Buffer {
    return this.granted.id;
  }

  /** Made when it is asked for: most handlers do not. */
  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    if (this.reason) this.controller.abort(this.reason);
    return this.controller.signal;
  }

  get isAborted(): boolean {
    return this.reason !== undefined;
  }

  /** Asks the handler to stop. */
  abort(reason: Error): void {
    this.reason ??= reason;
    this.controller?.abort(reason);
  }

  get name(): string {
    return `${JSON.stringify(this.delivery.id)} of queue ${this.delivery.queue}, attempt ${this.delivery.attempt}`;
  }
}
