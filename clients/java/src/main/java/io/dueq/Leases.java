package io.dueq;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * The deliveries that handlers have. It extends each lease when a third of it has passed, and the handler of a lost one
 * is interrupted. Guarded by the lock of the consumer.
 */
final class Leases {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  private static final int MOST_EXTENDED = 128;

  private final ReentrantLock lock;
  private final long leaseMs;
  private final long lease; // in nanoseconds
  private final Consumer<Runnable> spawn;
  private final Set<Delivery> held = new LinkedHashSet<>();
  private Runnable takeBack;
  private boolean isEnded;

  Leases(ReentrantLock lock, long leaseMs, Consumer<Runnable> spawn) {
    this.lock = lock;
    this.leaseMs = leaseMs;
    this.lease = TimeUnit.MILLISECONDS.toNanos(leaseMs);
    this.spawn = spawn;
  }

  int size() {
    return held.size();
  }

  List<Delivery> all() {
    return List.copyOf(held);
  }

  void add(Collection<Delivery> granted) {
    held.addAll(granted);
  }

  boolean remove(Delivery delivery) {
    return held.remove(delivery);
  }

  void begin() {
    if (!isEnded) {
      takeBack = Threads.after(Math.max(Math.min(1_000, leaseMs / 6), 1) * 1_000_000, this::tick);
    }
  }

  void end() {
    isEnded = true;
    takeBack.run();
  }

  private void tick() {
    lock.lock();
    try {
      var now = Clock.now();
      var due = new HashMap<Partition, List<Delivery>>();
      held.stream().filter(one -> one.extendAt <= now && !one.isLost() && !one.isConcluded)
          .forEach(one -> due.computeIfAbsent(one.partition, tag -> new ArrayList<>()).add(one));
      due.forEach((partition, all) -> {
        for (var at = 0; at < all.size(); at += MOST_EXTENDED) {
          var some = all.subList(at, Math.min(at + MOST_EXTENDED, all.size()));
          some.forEach(one -> one.extendAt = now + lease / 3);
          spawn.accept(() -> extend(partition, some));
        }
      });
      begin();
    } finally {
      lock.unlock();
    }
  }

  private void extend(Partition partition, List<Delivery> due) {
    var sent = Clock.now();
    var words = new ArrayList<Object>();
    due.forEach(one -> words.addAll(List.of(one.granted.id(), one.token, leaseMs)));
    List<String> texts;
    try {
      texts = Replies.textsAt("extend", partition.call("extend", "", words), 0);
    } catch (DueqException error) {
      LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + ": " + due.size() + " leases were not extended: "
          + error.getMessage());
      for (var one : due) {
        one.extendAt = Long.MIN_VALUE; // at the next tick
        if (one.expires <= Clock.now()) {
          lose(one);
        }
      }
      return;
    }
    for (var at = 0; at < due.size(); at += 1) {
      if (Replies.result("extend", texts.get(at)).outcome().equals("until")) {
        due.get(at).expires = sent + lease;
      } else {
        lose(due.get(at));
      }
    }
  }

  private void lose(Delivery delivery) {
    lock.lock();
    try {
      if (delivery.isConcluded || delivery.isLost()) {
        return;
      }
      delivery.lose();
    } finally {
      lock.unlock();
    }
    LOG.log(System.Logger.Level.WARNING, delivery + ": the lease was lost, and the handler is interrupted");
    delivery.abort(new IllegalStateException("the lease was lost"));
  }
}
