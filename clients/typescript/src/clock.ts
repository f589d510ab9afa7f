// An estimate of the server's clock from the times in its replies. Nothing here reads the wall clock.

/** Two clocks drift apart by one part in this many at most. */
const DRIFT = 1_000;

/** The monotonic clock, in milliseconds. */
export const monotonic = (): number => performance.now();

/** Bounds of the server's clock minus the monotonic clock, in microseconds. Arguments are monotonic milliseconds. */
export class Clock {
  private least = 0;
  private most = 0;
  private taken = 0;

  get known(): boolean {
    return this.taken > 0;
  }

  /** A reply bounds the difference. Earlier bounds count too, unless the server's clock was set since. */
  observe(sent: number, received: number, serverUs: number): void {
    let [least, most] = [serverUs - received * 1e3, serverUs - sent * 1e3];
    if (this.known) {
      const drift = ((received - this.taken) * 1e3) / DRIFT + 1;
      const both = [Math.max(least, this.least - drift), Math.min(most, this.most + drift)];
      if (both[0] <= both[1]) [least, most] = both;
    }
    [this.least, this.most, this.taken] = [least, most, received];
  }

  private loose(at: number): number {
    return (Math.abs(at - this.taken) * 1e3) / DRIFT + 1;
  }

  earliestUs(at: number): number {
    return Math.floor(at * 1e3 + this.least - this.loose(at));
  }

  latestUs(at: number): number {
    return Math.ceil(at * 1e3 + this.most + this.loose(at)) + 1;
  }

  /** By how much the estimate may be off. */
  spreadUs(at: number): number {
    return this.most - this.least + 2 * this.loose(at);
  }

  /** The monotonic time at which the server's clock shows this Unix millisecond. */
  at(serverMs: number): number {
    return serverMs - (this.least + this.most) / 2e3;
  }
}
