package io.dueq;

import static io.dueq.DueqException.invalid;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;

/** Handles the messages of its queues, from {@link #run} to {@link #stop}. Made by {@link Client#worker}. */
public final class Worker {
  private static final String DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  private static final long MAX_LEASE_MS = 86_400_000; // a day

  /**
   * What handles a message. It returns how the delivery is settled; null is an ack, and whatever it throws is a retry.
   * Its thread is interrupted if it should stop: its lease was lost, its time limit has passed, or the worker ends.
   */
  @FunctionalInterface
  public interface Handler {
    Settlement handle(Delivery delivery) throws Exception;
  }

  /** How a worker handles the messages of one queue. */
  public static final class Options {
    int concurrency = 16;
    long leaseMs = 30_000;
    Retry retry = Retry.exponential(Duration.ofSeconds(1), Duration.ofHours(1));
    long timeLimitMs;

    /** How many handlers run at once; 16 without it. Each queue has its own, so that none waits for another's. */
    public Options concurrency(int value) {
      concurrency = (int) Message.within("concurrency", value, 10_000);
      return this;
    }

    /** How long a message stays with a worker that has died; 30 s without it. It is extended while the handler runs. */
    public Options lease(Duration value) {
      leaseMs = Message.within("lease", Message.millis(value), MAX_LEASE_MS);
      return this;
    }

    /** The delays between attempts; from 1 s, doubling up to 1 h, without it. */
    public Options retry(Retry value) {
      retry = given("a retry policy", value);
      return this;
    }

    /** How long a handler may run before it is interrupted, and its message retried. */
    public Options timeLimit(Duration value) {
      timeLimitMs = Message.within("timeLimit", Message.millis(value), MAX_LEASE_MS);
      return this;
    }
  }

  private final Client client;
  final List<Consumer> consumers = new ArrayList<>();
  private final CompletableFuture<Void> stopped = new CompletableFuture<>();
  private Executor executor = Threads.POOL;
  private boolean began;
  private final String nodeId;

  Worker(Client client) {
    this.client = client;
    var id = new StringBuilder();
    new SecureRandom().ints(16, 0, DIGITS.length()).forEach(one -> id.append(DIGITS.charAt(one)));
    this.nodeId = id.toString();
  }

  public String nodeId() {
    return nodeId;
  }

  /** The threads of the handlers of queues that are added later; virtual threads or a cached pool without it. */
  public Worker executor(Executor value) {
    executor = given("an executor", value);
    return this;
  }

  /** Adds a queue with the usual options. */
  public Worker queue(Queue queue, Handler handler) {
    return queue(queue, handler, new Options());
  }

  /** Adds a queue. */
  public Worker queue(Queue queue, Handler handler, Options options) {
    if (handler == null) {
      throw invalid("queue " + queue.name() + " needs a handler: a function of a delivery");
    }
    return add(new Consumer(queue, handler, options, executor, nodeId));
  }

  static <T> T given(String what, T value) {
    if (value == null) {
      throw invalid(what + " is null: give one");
    }
    return value;
  }

  /** Adds a queue whose messages are handled in batches, with the usual options. */
  public Worker queue(Queue queue, InBatches handler) {
    return queue(queue, handler, new Options());
  }

  /** Adds a queue whose messages are handled in batches; the concurrency counts batches. */
  public Worker queue(Queue queue, InBatches handler, Options options) {
    handler.check(options);
    return add(new Consumer(queue, handler, options, executor, nodeId));
  }

  private synchronized Worker add(Consumer consumer) {
    if (began) {
      throw invalid("the worker runs: give it all queues before");
    }
    if (consumer.queue.client != client) {
      throw invalid("queue " + consumer.queue.name() + " is of another client: take it from the client of the worker");
    }
    if (consumers.stream().anyMatch(other -> other.queue.name().equals(consumer.queue.name()))) {
      throw invalid("the worker has queue " + consumer.queue.name() + " already");
    }
    consumers.add(consumer);
    return this;
  }

  /** Handles messages until {@link #stop} or an interruption, and until the handlers have ended, 10 s at most. */
  public void run() {
    run(Duration.ofSeconds(10));
  }

  /** The same; what the handlers have not ended after `grace` is released. */
  public void run(Duration grace) {
    synchronized (this) {
      if (began) {
        throw invalid("the worker runs, or has run: make a new one");
      }
      if (consumers.isEmpty()) {
        throw invalid("the worker has no queue: add one by `queue` before it runs");
      }
      client.check();
      began = true;
    }
    var graceNanos = Message.millis(grace) * 1_000_000;
    var running = CompletableFuture.allOf(consumers.stream()
        .map(one -> CompletableFuture.runAsync(() -> one.run(stopped, graceNanos), Threads.POOL))
        .toArray(CompletableFuture[]::new));
    var wasInterrupted = false;
    for (;;) {
      try {
        running.get();
        break;
      } catch (InterruptedException error) {
        wasInterrupted = true;
        stop();
      } catch (ExecutionException error) {
        throw DueqException.of(error);
      }
    }
    if (wasInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Claims no more messages, and ends {@link #run} once the handlers have ended. */
  public void stop() {
    stopped.complete(null);
  }
}
