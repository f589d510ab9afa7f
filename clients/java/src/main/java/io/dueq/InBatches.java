package io.dueq;

import static io.dueq.DueqException.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** A handler that takes 1 to `most` messages at a time; made by {@link #inBatches}. */
public final class InBatches {
  final int most;
  final long lingerMs;
  final Handler handler;

  private InBatches(int most, long lingerMs, Handler handler) {
    this.most = most;
    this.lingerMs = lingerMs;
    this.handler = handler;
  }

  /**
   * What handles a batch. It returns a settlement for each delivery, in their order, or null to ack all; what it throws
   * is a retry of all, and a delivery without a settlement is retried. Its thread is interrupted if the whole batch
   * should stop: all leases were lost, its time limit has passed, or the worker ends.
   */
  @FunctionalInterface
  public interface Handler {
    List<Settlement> handle(List<Delivery> batch) throws Exception;
  }

  /**
   * A handler of batches, for a queue of a worker. A batch is closed when it has `most` messages, when `linger` (at
   * most a third of the lease) has passed since its first one, or when the worker stops. The concurrency of the queue
   * counts batches. A message whose earlier lease ran out comes alone, so that one which crashes its worker harms no
   * other.
   */
  public static InBatches inBatches(int most, Duration linger, Handler handler) {
    return new InBatches((int) Message.within("the most messages of a batch", most, 10_000), Message.millis(linger),
        Worker.given("a handler", handler));
  }

  /** Checks it beside the options of its queue. */
  void check(Worker.Options options) {
    if (lingerMs > options.leaseMs / 3) {
      throw invalid("a batch lingers for " + lingerMs + " ms, more than a third of the lease: give it less");
    }
  }

  /** Gathers the deliveries of one queue into batches. */
  static final class Gather {
    private final InBatches spec;
    private final Handlers handlers;
    // Guarded by this:
    private List<Delivery> open = new ArrayList<>();
    private Runnable takeBack;
    private boolean isClosed;

    Gather(InBatches spec, Handlers handlers) {
      this.spec = spec;
      this.handlers = handlers;
    }

    void start(List<Delivery> deliveries) {
      var batches = new ArrayList<List<Delivery>>();
      synchronized (this) {
        for (var one : deliveries) {
          if (one.crashes() > 0) {
            batches.add(List.of(one));
            continue;
          }
          open.add(one);
          if (open.size() == spec.most) {
            batches.add(closed());
          }
        }
        if (!open.isEmpty() && isClosed) {
          batches.add(closed());
        } else if (!open.isEmpty() && takeBack == null) {
          takeBack = Threads.after(spec.lingerMs * 1_000_000, this::flush);
        }
      }
      handlers.start(batches);
    }

    /** How many deliveries wait in the open batch. */
    synchronized int waiting() {
      return open.size();
    }

    /** The worker stops: no batch waits for more messages. */
    void close() {
      synchronized (this) {
        isClosed = true;
      }
      flush();
    }

    private void flush() {
      List<Delivery> batch;
      synchronized (this) {
        batch = closed();
      }
      if (!batch.isEmpty()) {
        handlers.start(List.of(batch));
      }
    }

    private List<Delivery> closed() {
      if (takeBack != null) {
        takeBack.run();
        takeBack = null;
      }
      var batch = open;
      open = new ArrayList<>();
      return batch;
    }
  }
}
