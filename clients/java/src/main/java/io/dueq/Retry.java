package io.dueq;

import static io.dueq.DueqException.invalid;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** The delays between attempts. They do not limit the number of attempts: the message or its queue does. */
public final class Retry {
  private static final int DOUBLINGS = 31;

  private final long firstMs;
  private final long mostMs;
  private final boolean hasJitter;

  private Retry(long firstMs, long mostMs, boolean hasJitter) {
    this.firstMs = firstMs;
    this.mostMs = mostMs;
    this.hasJitter = hasJitter;
  }

  /** Doubling delays from `first` up to `most`, less a random part of up to half of each. */
  public static Retry exponential(Duration first, Duration most) {
    var retry = new Retry(Message.millis(first), Message.millis(most), true);
    if (retry.firstMs < 1 || retry.firstMs > retry.mostMs || retry.mostMs > Message.MAX_DELAY_MS) {
      throw invalid("retry delays from " + first + " to " + most
          + ": the first must be above zero and not above the last, which is 100 years at most");
    }
    return retry;
  }

  /** One delay for all retries, without jitter. */
  public static Retry fixed(Duration delay) {
    var ms = Message.delayMs(delay);
    return new Retry(ms, ms, false);
  }

  /** The delay after this attempt; 1 is the first. */
  long delayMs(int attempt) {
    if (!hasJitter) {
      return firstMs;
    }
    var full = Math.min(firstMs * Math.pow(2, Math.min(Math.max(attempt - 1, 0), DOUBLINGS)), mostMs);
    return (long) (full * (1 - 0.5 * ThreadLocalRandom.current().nextDouble()));
  }
}
