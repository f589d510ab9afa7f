package io.dueq;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/** The consumer of one queue: it claims for free handlers, runs them, and extends their leases. */
final class Consumer {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  private static final int MOST_CLAIMED = 256;
  private static final int MOST_EXTENDED = 128;
  /** How long a handler that is interrupted may clean up. */
  private static final long CLEANUP = TimeUnit.SECONDS.toNanos(2);
  private static final Throwable STOPPED = new IllegalStateException("the worker stops");

  final Queue queue;
  private final Worker.Handler handler;
  private final Executor executor;
  private final int concurrency;
  private final long leaseMs;
  private final long timeLimit; // in nanoseconds; 0 for none
  private final String nodeId;
  private final Settler settler;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  // Guarded by the lock:
  private int free;
  private final Map<String, Node> nodes = new LinkedHashMap<>();
  private final Set<Delivery> held = new LinkedHashSet<>();
  private int pending; // work that the stop waits for
  private boolean isStopping;
  private boolean isEnded;
  private boolean isRemapping;
  private boolean isDispatching;
  private int turn;

  Consumer(Queue queue, Worker.Handler handler, Worker.Options options, Executor executor, String nodeId) {
    this.queue = queue;
    this.handler = handler;
    this.executor = executor;
    this.concurrency = options.concurrency;
    this.leaseMs = options.leaseMs;
    this.timeLimit = TimeUnit.MILLISECONDS.toNanos(options.timeLimitMs);
    this.nodeId = nodeId;
    this.free = concurrency;
    this.settler = new Settler(queue, options.retry, this::partitions);
  }

  private List<Partition> partitions() {
    lock.lock();
    try {
      return nodes.values().stream().map(node -> node.partition).toList();
    } finally {
      lock.unlock();
    }
  }

  /** The caller holds the lock, as for all methods that a node calls. */
  int free() {
    return free;
  }

  int running() {
    return held.size();
  }

  /** Handles messages until `stop` ends; then lets handlers end for a while, and releases the rest. */
  void run(CompletableFuture<Void> stop, long graceNanos) {
    try {
      queue.router.refresh();
    } catch (DueqException error) {
      log(System.Logger.Level.WARNING, "the map of its partitions was not read yet: " + error.getMessage());
    }
    locked(this::attend);
    var extending = CompletableFuture.runAsync(this::extend, Threads.POOL);
    stop.join();
    leave(graceNanos);
    locked(() -> isEnded = true);
    extending.join();
  }

  private void log(System.Logger.Level level, String text) {
    LOG.log(level, "queue " + queue.name() + ": " + text);
  }

  private void locked(Runnable work) {
    lock.lock();
    try {
      work.run();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Work that the stop waits for. The caller holds the lock. */
  private void spawn(Runnable work) {
    pending += 1;
    Threads.run(() -> {
      try {
        work.run();
      } catch (RuntimeException error) {
        LOG.log(System.Logger.Level.ERROR, "a task of the consumer of " + queue.name() + " failed", error);
      } finally {
        locked(() -> pending -= 1);
      }
    });
  }

  /** Serves the partitions of the map: each of them, and no other. The caller holds the lock. */
  private void attend() {
    if (isStopping) {
      return;
    }
    var router = queue.router;
    var tags = Node.tagsOf(router.map());
    for (var tag : List.copyOf(nodes.keySet())) {
      if (!tags.contains(tag)) {
        spawn(nodes.remove(tag)::stop);
      }
    }
    for (var tag : tags) {
      if (!nodes.containsKey(tag)) {
        var node = new Node(router.servers, router.partition(tag), nodeId, this, lock);
        nodes.put(tag, node);
        node.start();
      }
    }
  }

  /** The caller holds the lock. */
  void sawEpoch(Long epoch) {
    var map = queue.router.map();
    var isSame = map == null ? epoch == null : epoch != null && epoch == map.epoch();
    if (isSame || isRemapping || isStopping) {
      return;
    }
    isRemapping = true;
    spawn(() -> {
      try {
        queue.router.refresh();
      } catch (DueqException error) {
        log(System.Logger.Level.INFO, "the map of its partitions was not read: " + error.getMessage());
      }
      locked(() -> {
        isRemapping = false;
        attend();
      });
    });
  }

  /** Claims soon: first all handlers that are about to end do so, and one claim serves them all. Holds the lock. */
  void dispatch() {
    if (!isDispatching && !isStopping && free > 0) {
      isDispatching = true;
      spawn(this::claimInTurn);
    }
  }

  /** Claims for the nodes that want to, in turn, while handlers are free. */
  private void claimInTurn() {
    lock.lock();
    try {
      isDispatching = false;
      var wanted = nodes.values().stream().filter(node -> node.wanted && !node.claiming).toList();
      if (isStopping || wanted.isEmpty()) {
        return;
      }
      turn += 1;
      var share = Math.max(free / wanted.size(), 1);
      for (var at = 0; at < wanted.size() && free > 0; at += 1) {
        var node = wanted.get(Math.floorMod(turn + at, wanted.size()));
        var count = Math.min(Math.min(share, free), MOST_CLAIMED);
        free -= count;
        node.claiming = true;
        spawn(() -> claim(node, count));
      }
    } finally {
      lock.unlock();
    }
  }

  /** The caller holds the lock. */
  private void giveBack(int count) {
    free += count;
    dispatch();
    nodes.values().forEach(Node::wake);
  }

  private void claim(Node node, int count) {
    // A token tells its node, so that an operator finds leases whose node is gone.
    var token = ("@" + nodeId.substring(nodeId.length() - 7) + "12345678").getBytes(StandardCharsets.UTF_8);
    System.arraycopy(Partition.random(8), 0, token, 8, 8);
    var began = Clock.now();
    var lease = TimeUnit.MILLISECONDS.toNanos(leaseMs);
    var granted = node.claim(count, token, leaseMs);
    var made = granted.stream()
        .map(one -> new Delivery(one, token, node.partition, began + lease, began + lease / 3)).toList();
    locked(() -> {
      held.addAll(made);
      giveBack(count - made.size()); // also of none: a node may have wanted to claim meanwhile
    });
    made.forEach(this::hand);
  }

  private void hand(Delivery delivery) {
    try {
      executor.execute(() -> handle(delivery));
    } catch (RuntimeException error) { // an executor of the user refuses
      log(System.Logger.Level.ERROR, "the executor of the handlers refuses " + delivery + ": " + error);
      conclude(delivery, Settlement.retry(error));
    }
  }

  private void handle(Delivery delivery) {
    lock.lock();
    var isLate = isStopping || delivery.isConcluded; // a claim may have been under way as the worker stopped
    lock.unlock();
    if (isLate) {
      conclude(delivery, Settlement.release());
      return;
    }
    Runnable takeBack = timeLimit == 0 ? () -> {} : Threads.after(timeLimit, () -> expire(delivery));
    Settlement settlement;
    delivery.begin();
    try {
      settlement = handler.handle(delivery);
      settlement = settlement == null ? Settlement.ack() : settlement;
    } catch (Throwable error) { // whatever it is, it is a failure of this attempt
      var reason = delivery.reason();
      var cause = reason instanceof TimeoutException ? reason : error;
      settlement = reason == STOPPED ? Settlement.release() : Settlement.retry(cause);
      if (!delivery.isLost() && reason != STOPPED) {
        LOG.log(System.Logger.Level.WARNING, "the handler of " + delivery + " failed", cause);
      }
    } finally {
      delivery.end();
      takeBack.run();
    }
    conclude(delivery, settlement);
  }

  /** Asks a handler that outlives its time limit to stop. It is no longer waited for after 2 s. */
  private void expire(Delivery delivery) {
    var late = new TimeoutException("the time limit of " + TimeUnit.NANOSECONDS.toMillis(timeLimit) + " ms has passed");
    delivery.abort(late);
    Threads.after(CLEANUP, () -> conclude(delivery, Settlement.retry(late)));
  }

  /** Settles a delivery once, unless its lease was lost, and gives back the place of its handler. */
  private void conclude(Delivery delivery, Settlement settlement) {
    lock.lock();
    try {
      if (delivery.isConcluded) {
        return;
      }
      delivery.isConcluded = true;
      pending += 1;
    } finally {
      lock.unlock();
    }
    Runnable drop = () -> locked(() -> {
      if (held.remove(delivery)) {
        giveBack(1);
      }
    });
    Runnable done = () -> locked(() -> pending -= 1);
    if (delivery.isLost()) {
      drop.run();
      done.run();
    } else if (settlement.verb.equals("throttle")) { // first: this place must not start another message
      settler.settle(delivery, settlement).thenRun(drop).thenRun(done);
    } else {
      drop.run();
      settler.settle(delivery, settlement).thenRun(done);
    }
  }

  /** Extends each lease when a third of it has passed; the handler of a lost one is interrupted. */
  private void extend() {
    var tick = TimeUnit.MILLISECONDS.toNanos(Math.max(Math.min(1_000, leaseMs / 6), 1));
    lock.lock();
    try {
      for (;;) {
        for (var left = tick; left > 0 && !isEnded;) {
          left = changed.awaitNanos(left);
        }
        if (isEnded) {
          return;
        }
        var due = new HashMap<Partition, List<Delivery>>();
        held.stream().filter(one -> one.extendAt <= Clock.now() && !one.isLost() && !one.isConcluded)
            .forEach(one -> due.computeIfAbsent(one.partition, tag -> new ArrayList<>()).add(one));
        due.forEach((partition, all) -> {
          for (var at = 0; at < all.size(); at += MOST_EXTENDED) {
            var some = all.subList(at, Math.min(at + MOST_EXTENDED, all.size()));
            some.forEach(one -> one.extendAt = Clock.now() + TimeUnit.MILLISECONDS.toNanos(leaseMs) / 3);
            spawn(() -> extend(partition, some));
          }
        });
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
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
      log(System.Logger.Level.WARNING, due.size() + " leases were not extended: " + error.getMessage());
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
        due.get(at).expires = sent + TimeUnit.MILLISECONDS.toNanos(leaseMs);
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

  private void leave(long graceNanos) {
    locked(() -> isStopping = true);
    inParallel(Node::stopClaiming);
    await(held::isEmpty, graceNanos);
    snapshot().forEach(delivery -> delivery.abort(STOPPED));
    await(held::isEmpty, CLEANUP);
    for (var delivery : snapshot()) {
      LOG.log(System.Logger.Level.ERROR, delivery + ": its handler does not end; the message is released");
      conclude(delivery, Settlement.release());
      delivery.lose();
    }
    await(() -> pending == 0, Long.MAX_VALUE);
    inParallel(Node::stop);
  }

  private void inParallel(java.util.function.Consumer<Node> work) {
    List<Node> all;
    lock.lock();
    try {
      all = List.copyOf(nodes.values());
    } finally {
      lock.unlock();
    }
    CompletableFuture.allOf(all.stream().map(node -> CompletableFuture.runAsync(() -> work.accept(node), Threads.POOL))
        .toArray(CompletableFuture[]::new)).join();
  }

  private List<Delivery> snapshot() {
    lock.lock();
    try {
      return List.copyOf(held);
    } finally {
      lock.unlock();
    }
  }

  /** Waits until something holds, for a time at most. */
  private void await(BooleanSupplier holds, long nanos) {
    lock.lock();
    try {
      for (var left = nanos; left > 0 && !holds.getAsBoolean();) {
        left = changed.awaitNanos(left);
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    } finally {
      lock.unlock();
    }
  }
}
