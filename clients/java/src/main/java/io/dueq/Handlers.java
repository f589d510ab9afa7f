package io.dueq;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the handler of one queue. Each batch, which may be of one delivery, has a thread of the executor for itself;
 * a thread that is done takes the next one, since it is costly to wake another.
 */
final class Handlers {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  /** How long a handler that is interrupted may clean up. */
  static final long CLEANUP = TimeUnit.SECONDS.toNanos(2);
  /** The reason of an interruption when the worker stops. */
  static final Throwable STOPPED = new IllegalStateException("the worker stops");
  /** How many threads one that begins starts for what waits: so all have begun after few steps. */
  private static final int STARTS = 2;

  private final InBatches.Handler handler;
  private final Executor executor;
  private final long timeLimit; // in nanoseconds; 0 for none
  private final int most;
  private final boolean startsAtStop;
  private final Consumer host;
  // Guarded by this:
  private final Deque<List<Delivery>> waiting = new ArrayDeque<>();
  private int starting; // threads that have not begun
  private int threads;

  /** At most so many threads are used. `startsAtStop`: what waits for a thread as the worker stops is not released. */
  Handlers(InBatches.Handler handler, Executor executor, long timeLimit, int most, boolean startsAtStop, Consumer host) {
    this.handler = handler;
    this.executor = executor;
    this.timeLimit = timeLimit;
    this.most = most;
    this.startsAtStop = startsAtStop;
    this.host = host;
  }

  void start(Collection<List<Delivery>> batches) {
    synchronized (this) {
      waiting.addAll(batches);
    }
    startThreads();
  }

  /** While batches wait, a thread is about to begin, or as many run as may. */
  private void startThreads() {
    for (var started = 0; started < STARTS && mayStart(); started += 1) {
      try {
        executor.execute(this::run);
      } catch (RuntimeException error) { // an executor of the user refuses
        List<Delivery> batch;
        synchronized (this) {
          starting -= 1;
          threads -= 1;
          batch = waiting.poll();
        }
        if (batch != null) {
          LOG.log(System.Logger.Level.ERROR, "the executor of the handlers refuses " + shown(batch) + ": " + error);
          batch.forEach(one -> host.conclude(one, Settlement.retry(error)));
        }
        started = -1; // what waits behind it has no thread either
      }
    }
  }

  private synchronized boolean mayStart() {
    if (starting >= waiting.size() || threads >= most) {
      return false;
    }
    starting += 1;
    threads += 1;
    return true;
  }

  private void run() {
    List<Delivery> batch;
    synchronized (this) {
      starting -= 1;
      batch = next();
    }
    if (batch != null) {
      startThreads();
    }
    while (batch != null) {
      handle(batch);
      synchronized (this) {
        batch = next();
      }
    }
  }

  private List<Delivery> next() {
    var batch = waiting.poll();
    threads -= batch == null ? 1 : 0;
    return batch;
  }

  private static String shown(List<Delivery> batch) {
    return batch.size() == 1 ? batch.get(0).toString() : "a batch of " + batch.size() + " from " + batch.get(0);
  }

  private void handle(List<Delivery> all) {
    var batch = host.startable(all, startsAtStop);
    if (batch.isEmpty()) {
      return;
    }
    Runnable takeBack = timeLimit == 0 ? () -> {} : Threads.after(timeLimit, () -> expire(batch));
    var running = new Running(batch);
    List<Settlement> settlements = null;
    Throwable failure = null;
    try {
      running.begin();
      settlements = handler.handle(batch);
    } catch (Throwable error) { // whatever it is, it is a failure of this attempt
      failure = error;
    } finally {
      running.end();
      takeBack.run();
    }
    if (failure != null) {
      failed(batch, failure);
      return;
    }
    for (var at = 0; at < batch.size(); at += 1) {
      host.conclude(batch.get(at), settlement(settlements, at));
    }
  }

  private static Settlement settlement(List<Settlement> all, int at) {
    if (all != null && at >= all.size()) {
      return Settlement.retry(
          "the handler of the batch returned " + all.size() + " settlements, and none for this delivery");
    }
    var one = all == null ? null : all.get(at);
    return one == null ? Settlement.ack() : one;
  }

  private void failed(List<Delivery> batch, Throwable error) {
    Throwable told = null;
    for (var delivery : batch) {
      var reason = delivery.reason();
      var cause = reason instanceof TimeoutException ? reason : error;
      told = delivery.isLost() || reason == STOPPED ? told : cause;
      host.conclude(delivery, reason == STOPPED ? Settlement.release() : Settlement.retry(cause));
    }
    if (told != null) {
      try {
        LOG.log(System.Logger.Level.WARNING, "the handler of " + shown(batch) + " failed", told);
      } catch (RuntimeException | Error second) { // the text of what was thrown throws, too
        LOG.log(System.Logger.Level.WARNING, "the handler of " + shown(batch) + " failed: " + Settlement.describe(told));
      }
    }
  }

  /** Asks a handler that outlives its time limit to stop. It is no longer waited for after 2 s. */
  private void expire(List<Delivery> batch) {
    var late = new TimeoutException("the time limit of " + TimeUnit.NANOSECONDS.toMillis(timeLimit) + " ms has passed");
    batch.forEach(one -> one.abort(late));
    Threads.after(CLEANUP, () -> batch.forEach(one -> host.conclude(one, Settlement.retry(late))));
  }

  /** The thread of a handler. It is interrupted once each of its deliveries is aborted. */
  static final class Running {
    private final List<Delivery> batch;
    // Guarded by this:
    private Thread thread;

    Running(List<Delivery> batch) {
      this.batch = batch;
    }

    void begin() {
      synchronized (this) {
        thread = Thread.currentThread();
      }
      batch.forEach(one -> one.runsIn(this));
    }

    synchronized void interruptIfUnneeded() {
      if (thread != null && batch.stream().allMatch(one -> one.reason() != null)) {
        thread.interrupt();
      }
    }

    /** From now on the thread belongs to other work. */
    synchronized void end() {
      thread = null;
      Thread.interrupted();
    }
  }
}
