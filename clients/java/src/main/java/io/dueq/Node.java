package io.dueq;

import io.dueq.Replies.Reply;
import io.dueq.Routes.PartitionMap;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * A node at one partition: it beats, leads or stands by, promotes and reaps.
 * The lock of its consumer guards its state; no call is made under it.
 */
final class Node {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  /** The longest time for which a node relies on hints alone. */
  static final long FALLBACK = millis(1_000);
  private static final long BEAT = millis(900);
  private static final long LEAD = millis(2_500);
  private static final long TICK = 100_000;
  private static final long STANDBY = millis(25);
  private static final int PROMOTE = 256;
  private static final int REAP = 64;

  final Partition partition;
  final Claims claims;
  private final Servers servers;
  private final String id;
  private final Consumer host;
  private final ReentrantLock lock;
  private final Condition changed;
  private final Server.Stop end = new Server.Stop();
  private CompletableFuture<Void> listening;
  private CompletableFuture<Void> beating;
  private final Alarm promote;
  private final Alarm reap;
  private final Stranded stranded;
  private Reply newest;
  private long leadsUntil = Long.MIN_VALUE;
  /** When the last notice came. */
  private long heardAt = Long.MIN_VALUE;
  private long nodes = 1;
  private long reapAfterMs;
  private boolean beatNow;
  private final Set<String> failing = new HashSet<>();

  Node(Servers servers, Partition partition, String id, Consumer host, ReentrantLock lock) {
    this.servers = servers;
    this.partition = partition;
    this.id = id;
    this.host = host;
    this.lock = lock;
    this.changed = lock.newCondition();
    this.claims = new Claims(this, servers, partition, host, lock);
    this.stranded = new Stranded(servers, partition);
    this.promote = alarm(this::promoteNow);
    this.reap = alarm(this::reapNow);
  }

  private Alarm alarm(LongSupplier act) {
    return new Alarm(lock, end::isStopped, act, error -> failed("a timer", DueqException.of(error)));
  }

  private static long millis(long ms) {
    return TimeUnit.MILLISECONDS.toNanos(ms);
  }

  void start() {
    listening = CompletableFuture.allOf(CompletableFuture.runAsync(claims::awaitTokens, Threads.POOL),
        CompletableFuture.runAsync(this::notices, Threads.POOL));
    beating = CompletableFuture.runAsync(this::beats, Threads.POOL);
  }

  /** Waits for no more messages, and returns the wake-up tokens that this node may have taken. */
  void stopClaiming() {
    claims.stop();
    locked(() -> {
      promote.clear();
      changed.signalAll();
    });
    listening.join();
    claims.returnToken();
  }

  /** Stops the node, and tells the other nodes so. */
  void stop() {
    claims.stop();
    end.stop();
    locked(() -> {
      promote.clear();
      reap.clear();
      changed.signalAll();
    });
    listening.join();
    beating.join();
    try {
      partition.call("beat", "", List.of(id, "leave"));
    } catch (DueqException error) {
      LOG.log(System.Logger.Level.INFO, "the other nodes learn in 3 s that this one has stopped: " + error.getMessage());
    }
  }

  /** The next beat is due now. The caller holds the lock. */
  void beatNow() {
    beatNow = true;
    changed.signalAll();
  }

  private void locked(Runnable work) {
    lock.lock();
    try {
      work.run();
    } finally {
      lock.unlock();
    }
  }

  /** Uses the header of a reply, unless a newer one was used. The caller holds the lock. */
  void saw(Reply reply, boolean isBeat) {
    if (newest != null && !reply.isNewerThan(newest)) {
      return;
    }
    var header = reply.header();
    var known = newest == null ? header.incarnation() : newest.header().incarnation();
    if (!known.equals(header.incarnation())) {
      if (!known.isEmpty()) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + " was emptied or replaced");
      }
      if (!known.isEmpty() || !isBeat) { // the new queue has no leader yet
        beatNow();
      }
    }
    newest = reply;
    host.sawEpoch(header.epoch());
    if (header.paused()) {
      promote.clear();
    } else {
      headIs(header.headMs(), isBeat, false, reply.sent());
    }
    if (header.deadlineMs() != null && !end.isStopped()) {
      reap.arm(reapAt(header.deadlineMs()));
    }
  }

  private long reapAt(long deadlineMs) {
    return partition.clock.at(Math.max(deadlineMs, reapAfterMs)) + standby(deadlineMs);
  }

  private long promoteAt(long headMs) {
    return partition.clock.at(headMs) + standby(headMs);
  }

  private boolean leads() {
    return Clock.now() < leadsUntil;
  }

  /** Arms the promotion. The caller holds the lock. */
  private void headIs(Long headMs, boolean isBeat, boolean isHeard, long sent) {
    // A leader that has promoted its head lives. A reply may be older than the notice that came before it.
    if (!leads() && sent > heardAt) {
      promote.clear();
    }
    if (headMs == null || claims.isStopped()) {
      return;
    }
    if (newest != null && newest.header().isPassed(headMs) && !isHeard) {
      // The call has added wake-up tokens. One of them may have been lost, so a beat looks after it.
      if (isBeat) {
        promote.arm(Clock.now());
      }
      return;
    }
    promote.arm(promoteAt(headMs));
  }

  /** By how much this node acts later than the leader. It differs between nodes, and between times. */
  private long standby(long timeMs) {
    if (leads()) {
      return 0;
    }
    var part = Routes.crc((id + timeMs).getBytes(StandardCharsets.UTF_8)) / 0x1p32;
    return Math.min((long) (STANDBY * (1 + part * nodes)), FALLBACK);
  }

  private long promoteNow() {
    lock.lock();
    try {
      var isAlone = nodes == 1 || leads() && host.running() == 0;
      if (host.free() > 0 && isAlone) {
        claims.want(true); // a claim takes due messages, too
        return Alarm.NEVER;
      }
    } finally {
      lock.unlock();
    }
    Reply reply;
    try {
      reply = partition.call("promote", "", List.of(PROMOTE));
    } catch (DueqException error) {
      failed("promote", error);
      return Alarm.NEVER;
    }
    lock.lock();
    try {
      saw(reply, false);
      var header = reply.header();
      // What is due still needs no second call: this one has added wake-up tokens, and claims take it.
      if (header.headMs() == null || header.paused() || header.isPassed(header.headMs())) {
        return Alarm.NEVER;
      }
      return Math.max(promoteAt(header.headMs()), Clock.now() + TICK);
    } finally {
      lock.unlock();
    }
  }

  private long reapNow() {
    lock.lock();
    try {
      var deadlineMs = newest == null ? null : newest.header().deadlineMs();
      if (deadlineMs == null) {
        return Alarm.NEVER;
      }
      if (partition.clock.at(Math.max(deadlineMs, reapAfterMs)) > Clock.now()) { // settled or extended since
        return reapAt(deadlineMs);
      }
    } finally {
      lock.unlock();
    }
    Reply reply;
    try {
      reply = partition.call("reap", "", List.of(REAP));
    } catch (DueqException error) {
      failed("reap", error);
      return Clock.now() + FALLBACK;
    }
    lock.lock();
    try {
      saw(reply, false);
      var reaped = Replies.integerAt("reap", reply, 0);
      if (reaped > 0) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + ": " + reaped + " leases of other nodes ran out");
      }
      var next = reply.header().deadlineMs();
      if (next == null) {
        return Alarm.NEVER;
      }
      return !reply.header().isPassed(next) ? reapAt(next) : Clock.now() + (reaped > 0 ? 0 : FALLBACK);
    } finally {
      lock.unlock();
    }
  }

  private void beats() {
    for (var pause = new Partition.Patience(); !end.isStopped();) {
      locked(() -> beatNow = false);
      try {
        var reply = partition.call("beat", "", List.of(id, "stay"));
        var isLeader = Replies.integerAt("beat", reply, 0) == 1;
        var count = Replies.integerAt("beat", reply, 1);
        var after = Replies.integerAt("beat", reply, 2);
        var ready = Replies.integerAt("beat", reply, 3);
        var batch = reply.body().size() > 5 ? Replies.textAt("beat", reply, 5) : ""; // empty once it has arrived
        pause = new Partition.Patience();
        lock.lock();
        try {
          if (failing.remove("outage")) {
            LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + ": redis answers again");
          }
          leadsUntil = isLeader ? reply.sent() + LEAD : Long.MIN_VALUE;
          nodes = Math.max(count, 1);
          reapAfterMs = after;
          saw(reply, true);
          if (ready != 0) {
            claims.want(true);
          }
          stranded.saw(isLeader ? batch : "", newest.header().epoch());
          for (var left = reply.sent() + BEAT - Clock.now(); left > 0 && !beatNow && !end.isStopped();) {
            left = changed.awaitNanos(left);
          }
        } finally {
          lock.unlock();
        }
      } catch (DueqException error) {
        failed("beat", error);
        pause.pause();
      } catch (InterruptedException error) {
        return; // nobody interrupts threads of this library
      }
    }
  }

  private void notices() {
    var notice = partition.keys.notice();
    while (!claims.isStopped()) {
      try {
        servers.follow(notice, (server, asking) -> {
          server.listen(notice, this::heard, claims.end(), () -> servers.ofKey(notice) == server);
          return true;
        });
      } catch (DueqException error) {
        if (!claims.isStopped()) {
          failed("SSUBSCRIBE", error);
        }
      }
      lock.lock();
      try { // the beats bring the head meanwhile
        for (var left = FALLBACK; left > 0 && !claims.isStopped();) {
          left = changed.awaitNanos(left);
        }
      } catch (InterruptedException error) {
        return;
      } finally {
        lock.unlock();
      }
    }
  }

  /** A notice: the head became earlier, or is what a promote left. Null: the subscription begins. */
  private void heard(String text) {
    locked(() -> {
      heardAt = Clock.now();
      // What was published before was missed; and a new queue has no leader yet.
      if (text == null || newest == null || newest.header().incarnation().isEmpty()) {
        beatNow();
      }
      if (text == null) {
        return;
      }
      if (text.isEmpty()) {
        headIs(null, false, true, Alarm.NEVER);
      } else if (text.matches("\\d{1,15}") && partition.clock.isKnown()) {
        headIs(Long.parseLong(text), false, true, Alarm.NEVER);
      }
    });
  }

  /** Logs the first error of an outage, and of each other kind. */
  void failed(String what, DueqException error) {
    locked(() -> {
      if (failing.add(error.isOutage() ? "outage" : what + " " + error.code())) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + ": " + what
            + " failed and is tried again: " + error.getMessage());
      }
    });
  }

  static List<String> tagsOf(PartitionMap map) {
    return map == null ? List.of(Routes.HOME) : map.tags();
  }
}
