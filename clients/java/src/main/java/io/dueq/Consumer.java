package io.dueq;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/** The consumer of one queue: it claims for free handlers, runs them, and extends their leases. */
final class Consumer {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  private static final int MOST_CLAIMED = 256;
  /** How long a claim of a queue that has more messages waits for further handlers to end. */
  private static final long GATHER = TimeUnit.MICROSECONDS.toNanos(100);

  final Queue queue;
  private final Handlers handlers;
  final InBatches.Gather gather; // null: each delivery has a handler of its own
  private final long leaseMs;
  private final int enough; // free handlers for a claim at once
  private final String nodeId;
  private final Settler settler;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  // Guarded by the lock:
  private int free;
  private final Map<String, Node> nodes = new LinkedHashMap<>();
  private final Leases leases;
  private int pending; // work that the stop waits for
  private boolean isStopping;
  private boolean isRemapping;
  private boolean isDispatching;
  private Runnable takeBack; // the timer that is about to dispatch
  private int turn;

  Consumer(Queue queue, Worker.Handler handler, Worker.Options options, Executor executor, String nodeId) {
    // There may be more threads than places: a handler that does not end after its time limit gives back its place.
    this(queue, batch -> Collections.singletonList(handler.handle(batch.get(0))), null, options, executor,
        Integer.MAX_VALUE, nodeId);
  }

  Consumer(Queue queue, InBatches batches, Worker.Options options, Executor executor, String nodeId) {
    this(queue, batches.handler, batches, options, executor, options.concurrency, nodeId);
  }

  private Consumer(Queue queue, InBatches.Handler handler, InBatches batches, Worker.Options options, Executor executor,
      int threads, String nodeId) {
    this.queue = queue;
    var timeLimit = TimeUnit.MILLISECONDS.toNanos(options.timeLimitMs);
    this.handlers = new Handlers(handler, executor, timeLimit, threads, batches != null, this);
    this.gather = batches == null ? null : new InBatches.Gather(batches, handlers);
    this.leaseMs = options.leaseMs;
    this.leases = new Leases(lock, leaseMs, this::spawn);
    this.nodeId = nodeId;
    this.free = options.concurrency * (batches == null ? 1 : batches.most);
    this.enough = Math.min(free, MOST_CLAIMED) / 2;
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
    return leases.size();
  }

  /** Handles messages until `stop` ends; then lets handlers end for a while, and releases the rest. */
  void run(CompletableFuture<Void> stop, long graceNanos) {
    try {
      queue.router.refresh();
    } catch (DueqException error) {
      log(System.Logger.Level.WARNING, "the map of its partitions was not read yet: " + error.getMessage());
    }
    locked(() -> {
      leases.begin();
      attend();
    });
    stop.join();
    leave(graceNanos);
  }

  private void log(System.Logger.Level level, String text) {
    LOG.log(level, "queue " + queue.name() + ": " + text);
  }

  private void locked(Runnable work) {
    lock.lock();
    try {
      work.run();
    } finally {
      unlock();
    }
  }

  private void unlock() {
    if (isStopping) { // only the stop waits for changes
      changed.signalAll();
    }
    lock.unlock();
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

  /** Claims soon: handlers often end together, and one claim serves them all. Holds the lock. */
  void dispatch() {
    if (isStopping || free == 0 || isDispatching && takeBack == null) {
      return;
    }
    var isWanted = false;
    var isUrgent = free >= enough || leases.size() == 0;
    for (var node : nodes.values()) {
      isWanted |= node.claims.isWanted();
      isUrgent |= node.claims.isWanted() && node.claims.isUrgent();
    }
    if (!isWanted || isDispatching && !isUrgent) {
      return;
    }
    if (isDispatching) {
      takeBack.run();
      takeBack = null;
    }
    isDispatching = true;
    if (isUrgent) {
      Threads.run(this::claimInTurn);
    } else {
      takeBack = Threads.after(GATHER, this::claimInTurn);
    }
  }

  /** Claims for the nodes that want to, in turn, while handlers are free. */
  private void claimInTurn() {
    lock.lock();
    try {
      isDispatching = false;
      takeBack = null;
      var wanted = nodes.values().stream().filter(node -> node.claims.isWanted()).toList();
      if (isStopping || wanted.isEmpty()) {
        return;
      }
      turn += 1;
      var share = Math.max(free / wanted.size(), 1);
      for (var at = 0; at < wanted.size() && free > 0; at += 1) {
        var node = wanted.get(Math.floorMod(turn + at, wanted.size()));
        var count = Math.min(Math.min(share, free), MOST_CLAIMED);
        free -= count;
        node.claims.begin();
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
    nodes.values().forEach(node -> node.claims.wake());
  }

  private void claim(Node node, int count) {
    // A token tells its node, so that an operator finds leases whose node is gone.
    var token = ("@" + nodeId.substring(nodeId.length() - 7) + "12345678").getBytes(StandardCharsets.UTF_8);
    System.arraycopy(Partition.random(8), 0, token, 8, 8);
    var lease = TimeUnit.MILLISECONDS.toNanos(leaseMs);
    var lot = node.claims.claim(count, token, leaseMs);
    var made = lot.granted().stream()
        .map(one -> new Delivery(one, token, node.partition, lot.began() + lease, lot.began() + lease / 3)).toList();
    locked(() -> {
      leases.add(made);
      giveBack(count - made.size()); // also of none: a node may have wanted to claim meanwhile
    });
    var startable = startable(made, false); // the worker may have stopped meanwhile
    if (gather == null) {
      handlers.start(startable.stream().map(List::of).toList());
    } else {
      gather.start(startable);
    }
  }

  /** Those that the worker has not asked to stop; the others are released. */
  List<Delivery> startable(List<Delivery> batch, boolean alsoAtStop) {
    List<Delivery> startable;
    lock.lock();
    try {
      startable = isStopping && !alsoAtStop ? List.of()
          : batch.stream().filter(one -> !one.isConcluded && one.reason() == null).toList();
    } finally {
      lock.unlock();
    }
    if (startable.size() < batch.size()) {
      batch.stream().filter(one -> !startable.contains(one)).forEach(one -> conclude(one, Settlement.release()));
    }
    return startable;
  }

  /** Settles a delivery once, unless its lease was lost, and gives back the place of its handler. */
  void conclude(Delivery delivery, Settlement settlement) {
    var isLost = delivery.isLost();
    var isThrottle = !isLost && settlement.verb.equals("throttle");
    lock.lock();
    try {
      if (delivery.isConcluded) {
        return;
      }
      delivery.isConcluded = true;
      pending += 1;
      if (!isThrottle) {
        drop(delivery);
      }
    } finally {
      unlock();
    }
    Runnable done = () -> locked(() -> {
      pending -= 1;
      if (isThrottle) { // not before: this place must not start another message
        drop(delivery);
      }
    });
    if (isLost) {
      done.run();
    } else {
      settler.settle(delivery, settlement).thenRun(done);
    }
  }

  private void drop(Delivery delivery) {
    if (leases.remove(delivery)) {
      giveBack(1);
    }
  }

  private void leave(long graceNanos) {
    locked(() -> isStopping = true);
    inParallel(Node::stopClaiming);
    if (gather != null) {
      gather.close();
    }
    await(() -> leases.size() == 0, graceNanos);
    held().forEach(delivery -> delivery.abort(Handlers.STOPPED));
    await(() -> leases.size() == 0, Handlers.CLEANUP);
    for (var delivery : held()) {
      log(System.Logger.Level.ERROR, delivery + ": its handler does not end; the message is released");
      conclude(delivery, Settlement.release());
      delivery.lose();
    }
    locked(leases::end);
    await(() -> pending == 0, Long.MAX_VALUE);
    inParallel(Node::stop);
  }

  private List<Delivery> held() {
    lock.lock();
    try {
      return leases.all();
    } finally {
      lock.unlock();
    }
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
