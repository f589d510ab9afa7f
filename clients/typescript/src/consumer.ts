// The consumer of one queue: it claims for free handlers, runs them, and extends their leases.
import { randomBytes } from "node:crypto";
import type { Queue } from "./client.js";
import { monotonic } from "./clock.js";
import { Settlement, type Delivery, type Retry } from "./delivery.js";
import { asDueqError } from "./errors.js";
import { CLEANUP, Held, limited } from "./held.js";
import { Batches, InBatches } from "./in_batches.js";
import { Node, type Host } from "./node.js";
import type { Partition } from "./partition.js";
import { list, result, text } from "./replies.js";
import { HOME } from "./routes.js";
import { Settler } from "./settling.js";
import { Gate, pause } from "./waiting.js";

const MAX_CLAIM = 256;
const EXTEND = 128;

/** What handles a message. A value that is no `Settlement` counts as an ack, and what it throws is a retry. */
export type Handler = (delivery: Delivery) => unknown;

export interface Settings {
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly retry: Retry;
  readonly timeLimitMs: number | undefined;
}

/** Runs the handler for the messages of one queue, `concurrency` of them at a time. */
export class Consumer implements Host {
  free: number;
  readonly hasFree = new Gate(true);
  private readonly nodes = new Map<string, { node: Node; ended: Promise<void> }>();
  private readonly held = new Set<Held>();
  private readonly work = new Set<Promise<void>>();
  private isRunning = false;
  private isStopping = false;
  private isRemapping = false;
  private isDispatching = false;
  private turn = 0;
  private readonly settler: Settler;
  private readonly batches: Batches | undefined;

  constructor(
    readonly queue: Queue,
    private readonly handler: Handler | InBatches,
    private readonly settings: Settings,
    private readonly nodeId: string,
  ) {
    const { concurrency, timeLimitMs } = settings;
    if (handler instanceof InBatches) this.batches = new Batches(handler, concurrency, timeLimitMs);
    this.free = concurrency * (handler instanceof InBatches ? handler.most : 1);
    this.settler = new Settler(queue, settings.retry, () => this.partitions);
  }

  private get partitions(): Partition[] {
    return [...this.nodes.values()].map(({ node }) => node.partition);
  }

  /** Handles messages until `stop` is aborted; then lets handlers end for a while, and releases the rest. */
  async run(stop: AbortSignal, graceMs: number): Promise<void> {
    this.isRunning = true;
    try {
      await this.queue.router.refresh();
    } catch (error) {
      this.log(
        "warn",
        `queue ${this.queue.name}: the map of its partitions was not read yet: ${asDueqError(error).message}`,
      );
    }
    this.attend();
    const extending = new AbortController();
    const extended = this.extends(extending.signal);
    await new Promise<void>((resolve) => {
      if (stop.aborted) resolve();
      else stop.addEventListener("abort", () => resolve(), { once: true });
    });
    await this.leave(graceMs);
    extending.abort();
    for (const { node } of this.nodes.values()) node.stop();
    await Promise.all([extended, ...[...this.nodes.values()].map(({ ended }) => ended)]);
    this.isRunning = false;
  }

  get running(): number {
    return this.held.size;
  }

  private get log() {
    return this.queue.client.log;
  }

  /** Serves the partitions of the map: each of them, and no other. */
  private attend(): void {
    const { router } = this.queue;
    if (!this.isRunning || this.isStopping) return;
    const tags = router.map?.tags ?? [HOME];
    for (const [tag, { node, ended }] of this.nodes) {
      if (tags.includes(tag)) continue;
      this.nodes.delete(tag);
      node.stop();
      this.background(ended);
    }
    for (const tag of tags) {
      if (this.nodes.has(tag)) continue;
      const node = new Node(router.servers, router.partition(tag), this.nodeId, this, this.log);
      this.nodes.set(tag, { node, ended: node.run() });
    }
  }

  sawEpoch(epoch: number | null): void {
    if (epoch === (this.queue.router.map?.epoch ?? null) || this.isRemapping || !this.isRunning) return;
    this.isRemapping = true;
    this.background(this.remap());
  }

  private async remap(): Promise<void> {
    try {
      await this.queue.router.refresh();
      this.attend();
    } catch (error) {
      this.log(
        "info",
        `queue ${this.queue.name}: the map of its partitions was not read: ${asDueqError(error).message}`,
      );
    } finally {
      this.isRemapping = false;
    }
  }

  /** Claims soon: first all handlers that are about to end do so, and one claim serves them all. */
  dispatch(): void {
    if (this.isDispatching) return;
    this.isDispatching = true;
    setImmediate(() => {
      this.isDispatching = false;
      this.claimInTurn();
    });
  }

  /** Claims for the nodes that want to, in turn, while handlers are free. */
  private claimInTurn(): void {
    const wanted = [...this.nodes.values()].map(({ node }) => node).filter((node) => node.wanted && !node.claiming);
    if (this.isStopping || !wanted.length) return;
    this.turn += 1;
    const first = this.turn % wanted.length;
    const share = Math.max(Math.floor(this.free / wanted.length), 1);
    for (const node of [...wanted.slice(first), ...wanted.slice(0, first)]) {
      if (this.free === 0) return;
      const count = Math.min(share, this.free, MAX_CLAIM);
      this.free -= count;
      if (this.free === 0) this.hasFree.set(false);
      node.claiming = true;
      this.background(this.claim(node, count));
    }
  }

  private giveBack(count: number): void {
    this.free += count;
    if (this.free === 0) return;
    this.hasFree.set(true);
    this.dispatch();
  }

  private async claim(node: Node, count: number): Promise<void> {
    const { leaseMs } = this.settings;
    // A token tells its node, so that an operator finds leases whose node is gone.
    const token = Buffer.concat([Buffer.from(`@${this.nodeId.slice(-7)}`), randomBytes(8)]);
    const third = monotonic() + leaseMs / 3;
    let unused = count;
    try {
      const { granted, expires } = await node.claim(count, token, leaseMs);
      for (const one of granted) {
        const held = new Held(this.queue.name, one, token, node.partition, expires, third);
        this.held.add(held);
        held.ended = this.background(this.handle(held));
        unused -= 1;
      }
    } finally {
      this.giveBack(unused);
    }
  }

  private async handle(held: Held): Promise<void> {
    let settlement: Settlement | undefined;
    try {
      // A claim may have been under way as the worker stopped.
      const answer = this.isStopping ? Settlement.release() : await this.called(held);
      settlement = answer instanceof Settlement ? answer : Settlement.ack();
    } catch (error) {
      settlement = this.failed(held, error);
    }
    try {
      if (!this.held.has(held)) return; // the worker has stopped without it
      if (held.isLost) settlement = undefined;
      else if (settlement.verb === "throttle") {
        await this.settler.settle(held, settlement); // first: this place must not start another message
        settlement = undefined;
      }
    } finally {
      if (this.held.delete(held)) this.giveBack(1);
    }
    if (settlement) await this.settler.settle(held, settlement);
  }

  private failed(held: Held, error: unknown): Settlement {
    if (this.isStopping && held.isAborted) return Settlement.release();
    const settlement = Settlement.retry(error);
    if (!held.isLost) this.log("warn", `the handler of ${held.name} failed`, error);
    return settlement;
  }

  private called(held: Held): unknown {
    const { handler, batches } = this;
    if (batches) return batches.answer(held);
    return limited([held], this.settings.timeLimitMs, () => (handler as Handler)(held.delivery));
  }

  /** Extends each lease when a third of it has passed; the handler of a lost one is asked to stop. */
  private async extends(signal: AbortSignal): Promise<void> {
    const tick = Math.min(1_000, this.settings.leaseMs / 6);
    for (await pause(tick, signal); !signal.aborted; await pause(tick, signal)) {
      const now = monotonic();
      const due = new Map<Partition, Held[]>();
      for (const held of this.held) {
        if (held.extendAt > now || held.isLost) continue;
        const others = due.get(held.partition);
        if (others) others.push(held);
        else due.set(held.partition, [held]);
      }
      for (const [partition, all] of due) {
        for (let at = 0; at < all.length; at += EXTEND) {
          this.background(this.extend(partition, all.slice(at, at + EXTEND)));
        }
      }
    }
  }

  private async extend(partition: Partition, due: readonly Held[]): Promise<void> {
    const { leaseMs } = this.settings;
    const sent = monotonic();
    for (const held of due) held.extendAt = sent + leaseMs / 3;
    let texts: string[];
    try {
      const reply = await partition.call(
        "extend",
        due.flatMap(({ id, token }) => [id, token, leaseMs]),
      );
      texts = list(reply.body[0]).map(text);
    } catch (error) {
      this.log(
        "warn",
        `queue ${this.queue.name}: ${due.length} leases were not extended: ${asDueqError(error).message}`,
      );
      for (const held of due) {
        held.extendAt = 0; // at the next tick
        if (held.expires <= monotonic()) this.lose(held);
      }
      return;
    }
    due.forEach((held, at) => {
      if (result("extend", texts[at]).outcome === "until") held.expires = sent + leaseMs;
      else this.lose(held);
    });
  }

  private lose(held: Held): void {
    if (!this.held.has(held) || held.isLost) return;
    this.log("warn", `${held.name}: the lease was lost, and the handler is asked to stop`);
    held.isLost = true;
    held.abort(new Error("the lease was lost"));
  }

  private async leave(graceMs: number): Promise<void> {
    const nodes = [...this.nodes.values()].map(({ node }) => node);
    this.isStopping = true;
    await Promise.all(nodes.map((node) => node.stopClaiming()));
    this.batches?.close();
    await this.heldEnd(graceMs);
    for (const held of this.held) held.abort(new Error("the worker stops"));
    await this.heldEnd(CLEANUP);
    const stubborn = [...this.held];
    this.held.clear();
    for (const held of stubborn) {
      this.log("error", `${held.name}: its handler does not end; the message is released`);
      this.work.delete(held.ended);
      await this.settler.settle(held, Settlement.release());
      held.isLost = true;
    }
    while (this.work.size) await Promise.all(this.work);
    await Promise.all(nodes.map((node) => node.leave()));
  }

  /** Waits until no handler runs, for a time at most. */
  private async heldEnd(ms: number): Promise<void> {
    const over = new AbortController();
    const late = pause(ms, over.signal).then(() => true);
    while (this.held.size) {
      if (await Promise.race([late, ...[...this.held].map(({ ended }) => ended)])) break;
    }
    over.abort();
  }

  /** Work that the stop waits for. The promise does not reject. */
  private background(work: Promise<void>): Promise<void> {
    const ended = work.then(
      () => void this.work.delete(ended),
      (error: unknown) => {
        this.work.delete(ended);
        this.log("error", `a task of the consumer of ${this.queue.name} failed`, error);
      },
    );
    this.work.add(ended);
    return ended;
  }
}
