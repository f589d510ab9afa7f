package io.dueq;

/**
 * An estimate of the server's clock from the times in its replies: bounds of it minus the monotonic clock.
 * Nothing here reads the wall clock. Times are monotonic nanoseconds.
 */
final class Clock {
  /** Two clocks drift apart by one part in this many at most. */
  private static final long DRIFT = 1_000;

  // The difference is about 1.8e18 ns in this century, which a long can hold.
  private long least;
  private long most;
  private long taken;
  private boolean known;

  static long now() {
    return System.nanoTime() - START;
  }

  private static final long START = System.nanoTime();

  synchronized boolean isKnown() {
    return known;
  }

  /** A reply bounds the difference. Earlier bounds count too, unless the server's clock was set since. */
  synchronized void observe(long sent, long received, long serverUs) {
    var lower = serverUs * 1_000 - received;
    var upper = serverUs * 1_000 - sent;
    if (known) {
      var loose = loose(received);
      if (Math.max(lower, least - loose) <= Math.min(upper, most + loose)) {
        lower = Math.max(lower, least - loose);
        upper = Math.min(upper, most + loose);
      }
    }
    least = lower;
    most = upper;
    taken = received;
    known = true;
  }

  private long loose(long at) {
    return Math.abs(at - taken) / DRIFT + 1_000;
  }

  synchronized long earliestUs(long at) {
    return Math.floorDiv(at + least - loose(at), 1_000);
  }

  synchronized long latestUs(long at) {
    return Math.floorDiv(at + most + loose(at), 1_000) + 1;
  }

  /** By how much the estimate may be off, in nanoseconds. */
  synchronized long spread(long at) {
    return most - least + 2 * loose(at);
  }

  /** The monotonic time at which the server's clock shows this Unix millisecond. */
  synchronized long at(long serverMs) {
    return Math.min(serverMs, 9_000_000_000_000L) * 1_000_000 - least - (most - least) / 2;
  }
}
