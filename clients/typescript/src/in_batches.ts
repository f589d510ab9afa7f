// Handlers of batches: one call of the handler for many messages, each settled for itself.
import { Settlement, type Delivery } from "./delivery.js";
import { invalid } from "./errors.js";
import { limited, type Held } from "./held.js";
import { milliseconds, type Milliseconds } from "./model.js";

/**
 * What handles a batch. It returns a `Settlement` for all deliveries, or an array with one for each, in their order;
 * any other value is an ack of all, what it throws a retry of all, and a delivery without a settlement is retried.
 */
export type BatchHandler = (batch: Delivery[]) => unknown;

/** A handler that takes 1 to `most` messages at a time; made by `inBatches`. */
export class InBatches {
  /** @internal */
  constructor(
    readonly most: number,
    readonly lingerMs: number,
    readonly handler: BatchHandler,
  ) {}
}

/**
 * A handler of batches, for a queue of a worker. A batch is closed when it has `most` messages, when `linger` (at most
 * a third of the lease) has passed since its first one, or when the worker stops. The concurrency of the queue counts
 * batches. A message whose earlier lease ran out comes alone, so that one which crashes its worker harms no other.
 */
export function inBatches(most: number, linger: Milliseconds, handler: BatchHandler): InBatches {
  if (!(Number.isInteger(most) && most >= 1)) throw invalid(`a batch of at most ${most} messages: give at least 1`);
  return new InBatches(most, milliseconds(linger), handler);
}

interface Waiting {
  readonly held: Held;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Gathers the deliveries of one queue, and gives each its settlement. */
export class Batches {
  private open: Waiting[] = [];
  private readonly closed: Waiting[][] = [];
  private timer: NodeJS.Timeout | undefined;
  private isClosing = false;

  /** `free`: how many batches may run now. */
  constructor(
    private readonly spec: InBatches,
    private free: number,
    private readonly timeLimitMs: number | undefined,
  ) {}

  /** How a delivery is settled, once the batch that it joins was handled. */
  answer(held: Held): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const one = { held, resolve, reject };
      if (held.delivery.crashes) return this.begin([one]);
      this.open.push(one);
      if (this.open.length === this.spec.most) this.flush();
      else this.timer ??= setTimeout(() => this.flush(), this.isClosing ? 0 : this.spec.lingerMs);
    });
  }

  /** The worker stops: no batch waits for more messages. */
  close(): void {
    this.isClosing = true;
    this.flush();
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.begin(this.open.splice(0));
  }

  private begin(batch: Waiting[] | undefined): void {
    if (!batch?.length) return;
    if (!this.free) return void this.closed.push(batch);
    this.free -= 1;
    void this.run(batch).then(() => {
      this.free += 1;
      this.begin(this.closed.shift());
    });
  }

  private async run(all: readonly Waiting[]): Promise<void> {
    // A lease may have been lost while the batch waited, or the worker stops.
    for (const { held, resolve } of all) if (held.isAborted) resolve(Settlement.release());
    const batch = all.filter(({ held }) => !held.isAborted);
    if (!batch.length) return;
    const deliveries = batch.map(({ held }) => held.delivery);
    try {
      const answer = await limited(
        batch.map(({ held }) => held),
        this.timeLimitMs,
        () => this.spec.handler(deliveries),
      );
      batch.forEach(({ resolve }, at) => resolve(Array.isArray(answer) ? (answer[at] ?? missing(answer)) : answer));
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}

function missing(answer: readonly unknown[]): Settlement {
  const text = `the handler of the batch returned ${answer.length} settlements, and none for this delivery`;
  return Settlement.retry(text);
}
