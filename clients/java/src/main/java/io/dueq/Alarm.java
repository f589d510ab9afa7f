package io.dueq;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** Acts at a time. At most one act is under way, and of several times the earliest counts. Guarded by the lock. */
final class Alarm {
  static final long NEVER = Long.MAX_VALUE;

  private final ReentrantLock lock;
  private final BooleanSupplier isEnded;
  private final LongSupplier act;
  private final Consumer<RuntimeException> failed;
  private Runnable takeBack;
  private int armed; // tells a timer that it was taken back too late
  private long at = NEVER;
  private long sent = NEVER;
  private long next = NEVER;

  /** `act` runs without the lock, and returns when to act again, or NEVER. After a defect of it, a second passes. */
  Alarm(ReentrantLock lock, BooleanSupplier isEnded, LongSupplier act, Consumer<RuntimeException> failed) {
    this.lock = lock;
    this.isEnded = isEnded;
    this.act = act;
    this.failed = failed;
  }

  void arm(long time) {
    if (sent != NEVER) {
      next = time > sent ? Math.min(time, next) : next; // the act under way covers what was due when it began
    } else if (time < at) {
      clear();
      at = time;
      var own = armed;
      takeBack = Threads.after(time - Clock.now(), () -> fire(own));
    }
  }

  void clear() {
    if (takeBack != null) {
      takeBack.run();
    }
    armed += 1;
    takeBack = null;
    at = NEVER;
    next = NEVER;
  }

  private void fire(int own) {
    lock.lock();
    try {
      if (own != armed || isEnded.getAsBoolean()) {
        return;
      }
      clear();
      sent = Clock.now();
    } finally {
      lock.unlock();
    }
    var again = NEVER;
    try {
      again = act.getAsLong();
    } catch (RuntimeException error) { // a defect must not end the timer
      failed.accept(error);
      again = Clock.now() + Node.FALLBACK;
    }
    lock.lock();
    try {
      sent = NEVER;
      var later = Math.min(again, next);
      next = NEVER;
      if (later != NEVER && !isEnded.getAsBoolean()) {
        arm(later);
      }
    } finally {
      lock.unlock();
    }
  }
}
