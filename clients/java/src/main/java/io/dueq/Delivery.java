package io.dueq;

import io.dueq.Replies.Granted;
import io.dueq.model.Tick;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.OptionalLong;

/** One message in the hands of a handler, under a lease that the worker extends. */
public final class Delivery {
  final Granted granted;
  final byte[] token;
  final Partition partition;
  /** Until when the lease runs at least, and when it is to be extended, by the monotonic clock. */
  volatile long expires;
  volatile long extendAt;
  /** Whether its settlement was decided; guarded by the lock of its consumer. */
  boolean isConcluded;
  private volatile boolean isLost;
  // Guarded by this:
  private Handlers.Running running;
  private Throwable reason;

  Delivery(Granted granted, byte[] token, Partition partition, long expires, long extendAt) {
    this.granted = granted;
    this.token = token;
    this.partition = partition;
    this.expires = expires;
    this.extendAt = extendAt;
  }

  public String queue() {
    return partition.queue;
  }

  public String id() {
    return Message.shown(granted.id());
  }

  public byte[] idBytes() {
    return granted.id().clone();
  }

  public byte[] payload() {
    return granted.payload();
  }

  /** The payload as text. */
  public String text() {
    return new String(granted.payload(), StandardCharsets.UTF_8);
  }

  /** Failures and crashes before this delivery, plus one. */
  public int attempt() {
    return granted.attempt();
  }

  /** How many leases of the message ran out before. */
  public int crashes() {
    return granted.crashes();
  }

  /** Whether a failure of this attempt makes the message dead. */
  public boolean isLastAttempt() {
    return granted.isLastAttempt();
  }

  /** When the message was due, in Unix milliseconds of the server. */
  public long dueMs() {
    return granted.dueMs();
  }

  /** No attempt of the message starts after this time. */
  public OptionalLong expiresAtMs() {
    return Replies.optional(granted.expiresAtMs());
  }

  public Optional<String> traceParent() {
    return Optional.ofNullable(granted.traceParent());
  }

  public int snoozes() {
    return granted.snoozes();
  }

  /** The schedule and the fire that the message stands for, if a schedule has made it. */
  public Optional<Tick> tick() {
    var at = id().lastIndexOf('@');
    return granted.isTick() && id().substring(at + 1).matches("\\d{1,18}") && at >= 0
        ? Optional.of(new Tick(id().substring(0, at), Long.parseLong(id().substring(at + 1)))) : Optional.empty();
  }

  public int cost() {
    return granted.cost();
  }

  /** Whether the lease was lost: the message is or will be delivered again, so the handler should stop. */
  public boolean isLost() {
    return isLost;
  }

  void lose() {
    isLost = true;
  }

  void runsIn(Handlers.Running thread) {
    synchronized (this) {
      running = thread;
      if (reason == null) {
        return;
      }
    }
    thread.interruptIfUnneeded();
  }

  /** Asks the handler to stop. */
  void abort(Throwable why) {
    Handlers.Running thread;
    synchronized (this) {
      reason = reason == null ? why : reason;
      thread = running;
    }
    if (thread != null) {
      thread.interruptIfUnneeded();
    }
  }

  synchronized Throwable reason() {
    return reason;
  }

  @Override
  public String toString() {
    return "\"" + id() + "\" of queue " + queue() + ", attempt " + attempt();
  }
}
