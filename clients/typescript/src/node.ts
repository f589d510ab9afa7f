// A node at one partition: it beats, leads or stands by, promotes, reaps, and learns when to claim.
import { randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
import { Alarm } from "./alarm.js";
import { monotonic } from "./clock.js";
import { asDueqError, unexpected, type DueqError } from "./errors.js";
import type { Log } from "./log.js";
import { Partition, Patience } from "./partition.js";
import { claim, integer, text, type Granted, type Reply } from "./replies.js";
import type { Servers } from "./servers.js";
import { Gate, pause } from "./waiting.js";

/** The longest time for which a node relies on hints alone, in milliseconds. */
const FALLBACK = 1_000;
const BEAT = 900;
const LEAD = 2_500;
const TICK = 0.1;
const STANDBY = 25;
const PROMOTE = 256;
const REAP = 64;
const STRANDED = 2_500;

/** What a node needs of the consumer that has its handlers. */
export interface Host {
  readonly free: number;
  readonly running: number;
  /** Is open while a handler is free. */
  readonly hasFree: Gate;
  dispatch(): void;
  sawEpoch(epoch: number | null): void;
}

/** A node at one partition. `wanted`: it should claim, as soon as a handler is free. */
export class Node {
  wanted = false;
  claiming = false;
  private readonly end = new AbortController();
  private readonly endClaims = new AbortController();
  private claims: Promise<unknown> = Promise.resolve();
  private newest: Reply | undefined;
  private leadsUntil = 0;
  /** When the last notice came. */
  private heardAt = 0;
  private nodes = 1;
  private reapAfterMs = 0;
  private readonly promote = new Alarm(() => this.guarded(() => this.promoteNow()));
  private readonly reap = new Alarm(() => this.guarded(() => this.reapNow()));
  private readonly beatNow = new Gate();
  private readonly claimed = new Gate(true);
  private empty = 0;
  private moving: { batch: string; since: number } | undefined;
  private readonly failing = new Set<string>();

  constructor(
    private readonly servers: Servers,
    readonly partition: Partition,
    private readonly id: string,
    private readonly host: Host,
    private readonly log: Log,
  ) {}

  /** Works until `stop`. */
  async run(): Promise<void> {
    this.claims = Promise.all([this.pops(this.endClaims.signal), this.notices(this.endClaims.signal)]);
    await Promise.all([this.claims, this.beats(this.end.signal)]);
  }

  stop(): void {
    this.end.abort();
    this.endClaims.abort();
    this.promote.clear();
    this.reap.clear();
  }

  /** Waits for no more messages, and returns the wake-up tokens that this node may have taken. */
  async stopClaiming(): Promise<void> {
    this.endClaims.abort();
    this.wanted = false;
    this.promote.clear();
    await this.claims;
    await this.returnToken();
  }

  /** Tells the other nodes that this one stops. */
  async leave(): Promise<void> {
    try {
      await this.partition.call("beat", [this.id, "leave"]);
    } catch (error) {
      this.log("info", `the other nodes learn in 3 s that this one has stopped: ${asDueqError(error).message}`);
    }
  }

  want(): void {
    if (this.endClaims.signal.aborted) return;
    this.wanted = true;
    this.claimed.set(false);
    this.host.dispatch();
  }

  /** Claims up to `free` messages. Returns them, and until when their lease runs at least. */
  async claim(free: number, token: Buffer, leaseMs: number): Promise<{ granted: Granted[]; expires: number }> {
    this.wanted = false;
    this.claiming = true;
    try {
      const { reply, began } = await this.claimPatiently(free, token, leaseMs);
      const { granted, left } = claim(reply);
      this.saw(reply);
      const more = left > 0 || isPassed(reply.header.headMs, reply);
      this.empty = granted.length ? 0 : this.empty + 1;
      if (granted.length === free && more) {
        this.want();
      } else if (more && !reply.header.paused && (granted.length || this.empty % 16)) {
        // Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
        setTimeout(() => this.want(), 1);
      }
      return { granted, expires: began + leaseMs };
    } catch (error) {
      this.failed("claim", asDueqError(error));
      // The lost reply may have told of a head, and its tokens are gone: the next beat tells again.
      this.beatNow.set(true);
      return { granted: [], expires: 0 };
    } finally {
      this.claiming = false;
      if (!this.wanted) this.claimed.set(true);
    }
  }

  /**
   * Repeats a claim whose reply was lost with the same token, and so finds what it granted. Returns also when the lease
   * began at the earliest.
   */
  private async claimPatiently(free: number, token: Buffer, leaseMs: number): Promise<{ reply: Reply; began: number }> {
    const patience = new Patience();
    const first = monotonic();
    for (;;) {
      try {
        const reply = await this.partition.call("claim", [free, token, leaseMs]);
        return { reply, began: reply.sent };
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (error.code === "HELD") return { reply: await this.partition.callPatiently("held", [token]), began: first };
        if (!patience.allows(error)) throw error;
        this.failed("claim", error);
      }
      await patience.pause();
    }
  }

  private async returnToken(): Promise<void> {
    try {
      await this.partition.call("claim", [0, randomBytes(16), 1]);
    } catch (error) {
      const why = asDueqError(error).message;
      this.log("info", `a wake-up token was not returned: other nodes look within ${FALLBACK} ms: ${why}`);
    }
  }

  /** Uses the header of a reply, unless a newer one was used. */
  saw(reply: Reply, isBeat = false): void {
    const { newest: old } = this;
    const { header } = reply;
    if (old && !isNewer(reply, old)) return;
    if (old && old.header.incarnation !== "" && old.header.incarnation !== header.incarnation) {
      this.log("warn", `queue ${this.partition.queue} was emptied or replaced`);
      this.beatNow.set(true);
    }
    this.newest = reply;
    this.host.sawEpoch(header.epoch);
    if (header.paused) this.promote.clear();
    else this.headIs(header.headMs, { isBeat, sent: reply.sent });
    const { deadlineMs } = header;
    if (deadlineMs !== null && !this.end.signal.aborted) this.reap.arm(this.reapAt(deadlineMs));
  }

  private reapAt(deadlineMs: number): number {
    return this.partition.clock.at(Math.max(deadlineMs, this.reapAfterMs)) + this.standby(deadlineMs);
  }

  private get leads(): boolean {
    return monotonic() < this.leadsUntil;
  }

  private headIs(headMs: number | null, { isBeat = false, isHeard = false, sent = Infinity } = {}): void {
    // A leader that has promoted its head lives. A reply may be older than the notice that came before it.
    if (!this.leads && sent > this.heardAt) this.promote.clear();
    if (headMs === null || this.endClaims.signal.aborted) return;
    if (this.newest && isPassed(headMs, this.newest) && !isHeard) {
      // The call has added wake-up tokens. One of them may have been lost, so a beat looks after it.
      if (isBeat) this.promote.arm(monotonic());
      return;
    }
    this.promote.arm(this.partition.clock.at(headMs) + this.standby(headMs));
  }

  /** By how much this node acts later than the leader. It differs between nodes, and between times. */
  private standby(timeMs: number): number {
    if (this.leads) return 0;
    const part = crc32(`${this.id}${timeMs}`) / 2 ** 32;
    return Math.min(STANDBY * (1 + part * this.nodes), FALLBACK);
  }

  /** An act of an alarm: a defect must not end the timer. */
  private async guarded(act: () => Promise<number | null>): Promise<number | null> {
    try {
      return this.end.signal.aborted ? null : await act();
    } catch (error) {
      this.failed("a timer", asDueqError(error));
      return monotonic() + FALLBACK;
    }
  }

  private async promoteNow(): Promise<number | null> {
    const alone = this.nodes === 1 || this.host.running === 0;
    if (this.host.free > 0 && (this.leads ? alone : this.nodes === 1)) {
      this.want(); // a claim takes due messages, too
      return null;
    }
    let reply: Reply;
    try {
      reply = await this.partition.call("promote", [PROMOTE]);
    } catch (error) {
      this.failed("promote", asDueqError(error));
      return null;
    }
    this.saw(reply);
    const { headMs, paused } = reply.header;
    // What is due still needs no second call: this one has added wake-up tokens, and claims take it.
    if (headMs === null || paused || isPassed(headMs, reply)) return null;
    return Math.max(this.partition.clock.at(headMs) + this.standby(headMs), monotonic() + TICK);
  }

  private async reapNow(): Promise<number | null> {
    const deadlineMs = this.newest?.header.deadlineMs ?? null;
    if (deadlineMs === null) return null;
    // The lease was settled or extended since.
    if (this.partition.clock.at(Math.max(deadlineMs, this.reapAfterMs)) > monotonic()) return this.reapAt(deadlineMs);
    let reply: Reply;
    try {
      reply = await this.partition.call("reap", [REAP]);
    } catch (error) {
      this.failed("reap", asDueqError(error));
      return monotonic() + FALLBACK;
    }
    this.saw(reply);
    const reaped = integer(reply.body[0]);
    if (reaped) this.log("warn", `queue ${this.partition.queue}: ${reaped} leases of other nodes ran out`);
    const next = reply.header.deadlineMs;
    if (next === null) return null;
    if (isPassed(next, reply)) return monotonic() + (reaped ? 0 : FALLBACK);
    return this.partition.clock.at(next) + this.standby(next);
  }

  private async beats(signal: AbortSignal): Promise<void> {
    for (let wait = 50; !signal.aborted;) {
      this.beatNow.set(false);
      try {
        const reply = await this.partition.call("beat", [this.id, "stay"]);
        if (reply.body.length < 4) throw unexpected("beat", reply.body);
        this.beaten(reply);
        wait = 50;
        await this.beatNow.wait(signal, reply.sent + BEAT - monotonic());
      } catch (error) {
        this.failed("beat", asDueqError(error));
        await pause(wait, signal);
        wait = Math.min(wait * 2, 500);
      }
    }
  }

  private beaten(reply: Reply): void {
    if (this.failing.delete("outage")) this.log("warn", `queue ${this.partition.queue}: redis answers again`);
    const [leads, nodes, reapAfterMs, ready, , moving] = reply.body;
    this.leadsUntil = leads === 1 ? reply.sent + LEAD : 0;
    this.nodes = Math.max(integer(nodes), 1);
    this.reapAfterMs = integer(reapAfterMs);
    this.saw(reply, true);
    if (ready) this.want();
    const batch = moving ? text(moving) : ""; // empty once it has arrived
    if (this.leads && batch) void this.endStranded(batch);
    else if (this.leads) this.moving = undefined;
  }

  private async pops(signal: AbortSignal): Promise<void> {
    const { wake } = this.partition.keys;
    for (let wait = 50; !signal.aborted;) {
      await this.host.hasFree.wait(signal);
      await this.claimed.wait(signal);
      if (signal.aborted) return;
      if (this.host.free === 0) continue; // the claim has used them
      try {
        const popped = await this.servers.block(wake, signal, "BLPOP", wake, "1");
        wait = 50;
        if (popped === null) continue;
        if (this.claiming || this.host.free > 0) this.want();
        else await this.returnToken();
      } catch (error) {
        if (signal.aborted) return;
        this.failed("BLPOP", asDueqError(error));
        await pause(wait, signal);
        wait = Math.min(wait * 2, 500);
        this.want(); // the lost reply may have brought a token
      }
    }
  }

  private async notices(signal: AbortSignal): Promise<void> {
    const { notice } = this.partition.keys;
    while (!signal.aborted) {
      // Ends the subscription when the slot has moved to another server, which drivers do not tell alike.
      const moved = new AbortController();
      const ended = AbortSignal.any([signal, moved.signal]);
      try {
        const server = await this.servers.ofKey(notice);
        const listening = server.listen(notice, (message) => this.heard(message), ended);
        const look = setInterval(() => {
          void this.servers.ofKey(notice).then(
            (now) => now !== server && moved.abort(),
            () => moved.abort(),
          );
        }, FALLBACK);
        await listening.finally(() => clearInterval(look));
      } catch (error) {
        if (!ended.aborted) this.failed("SSUBSCRIBE", asDueqError(error));
      }
      await pause(FALLBACK, signal); // the beats bring the head meanwhile
    }
  }

  /** A notice: the head became earlier, or is what a promote left. Null: the subscription begins. */
  private heard(notice: Buffer | null): void {
    this.heardAt = monotonic();
    // What was published before was missed; and a new queue has no leader yet.
    if (notice === null || this.newest?.header.incarnation === "") this.beatNow.set(true);
    if (notice === null) return;
    if (!notice.length) {
      this.headIs(null);
    } else if (/^\d+$/.test(notice.toString()) && this.partition.clock.known) {
      this.headIs(Number(notice.toString()), { isHeard: true });
    }
  }

  /** Ends a batch that stays on its way to another partition for 2.5 s: who moved it may be dead. */
  private async endStranded(batch: string): Promise<void> {
    if (this.moving?.batch !== batch) this.moving = { batch, since: monotonic() };
    const epoch = this.newest?.header.epoch ?? null;
    if (monotonic() - this.moving.since < STRANDED || epoch === null) return;
    this.moving = undefined;
    const [fence, own, tag] = [`m${epoch}`, this.partition, batch.split(" ")[1]];
    try {
      const number = integer((await own.call("depart", ["", 0, tag, 5_000], fence)).body[0]);
      if (!number) return;
      const target = new Partition(this.servers, own.queue, tag);
      const answer = text((await target.callPatiently("arrive", [own.tag, number, ""], fence)).body[0]);
      const verdict = { VOID: "back", APPLIED: "done" }[answer.split(" ")[0]];
      if (verdict) await own.callPatiently("depart", [`${verdict}=${number}`, 0, tag, 5_000], fence);
    } catch (error) {
      const why = asDueqError(error).message;
      this.log("warn", `queue ${own.queue}: a batch stays on its way to another partition: ${why}`);
    }
  }

  /** Logs the first error of an outage, and of each other kind. */
  private failed(what: string, error: DueqError): void {
    const isOutage = error.kind === "unavailable" || error.kind === "timeout";
    const kind = isOutage ? "outage" : `${what} ${error.code}`;
    if (this.failing.has(kind)) return;
    this.failing.add(kind);
    this.log("warn", `queue ${this.partition.queue}: ${what} failed and is tried again: ${error.message}`);
  }
}

function isPassed(timeMs: number | null, { header }: Reply): boolean {
  return timeMs !== null && timeMs * 1e3 <= header.nowUs;
}

/** By the rules of the protocol: calls use several connections, so replies overtake each other. */
function isNewer(reply: Reply, old: Reply): boolean {
  if (reply.sent >= old.received) return true;
  const [a, b] = [reply.header, old.header];
  if (a.incarnation === b.incarnation && a.seq !== b.seq) return a.seq > b.seq;
  return a.nowUs > b.nowUs;
}
