// A timer that acts at the earliest of the times that it is given.
import { monotonic } from "./clock.js";

/** Timers of node.js do not take longer times. */
const LONGEST = 60_000;

/** Acts at a time of the monotonic clock. At most one act is under way. `act` returns when to act again, or null. */
export class Alarm {
  private at: number | null = null;
  private next: number | null = null;
  private sent: number | null = null;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly act: () => Promise<number | null>) {}

  arm(at: number): void {
    if (this.sent !== null) {
      // The act under way covers what was due when it began.
      if (at > this.sent) this.next = Math.min(at, this.next ?? at);
    } else if (this.at === null || at < this.at) {
      this.clear();
      this.at = at;
      this.wait(at);
    }
  }

  clear(): void {
    clearTimeout(this.timer);
    this.at = this.next = null;
  }

  private wait(at: number): void {
    const left = Math.min(Math.max(Math.ceil(at - monotonic()), 0), LONGEST);
    this.timer = setTimeout(() => this.fire(at), left);
  }

  private fire(at: number): void {
    if (at > monotonic()) return this.wait(at);
    this.at = null;
    this.sent = monotonic();
    void this.act().then((again) => {
      this.sent = null;
      const later = this.next;
      this.next = null;
      for (const one of [again, later]) if (one !== null) this.arm(one);
    });
  }
}
