package io.dueq;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** The threads of this library: virtual where the JVM has them, else a cached pool of daemons. */
final class Threads {
  private static final AtomicLong COUNT = new AtomicLong();
  private static final ThreadFactory DAEMONS = work -> {
    var thread = new Thread(work, "dueq-" + COUNT.incrementAndGet());
    thread.setDaemon(true);
    return thread;
  };
  /** For work that blocks. */
  static final ExecutorService POOL = pool();
  private static final ScheduledThreadPoolExecutor TIMER = timer();

  private Threads() {}

  private static ExecutorService pool() {
    try {
      return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException error) { // before Java 21
      return Executors.newCachedThreadPool(DAEMONS);
    }
  }

  private static ScheduledThreadPoolExecutor timer() {
    var timer = new ScheduledThreadPoolExecutor(1, DAEMONS);
    timer.setRemoveOnCancelPolicy(true);
    return timer;
  }

  static void run(Runnable work) {
    POOL.execute(work);
  }

  /** Runs work on the pool after a time; what is returned takes it back. */
  static Runnable after(long nanos, Runnable work) {
    var timed = TIMER.schedule(() -> run(work), Math.max(nanos, 0), TimeUnit.NANOSECONDS);
    return () -> timed.cancel(false);
  }
}
