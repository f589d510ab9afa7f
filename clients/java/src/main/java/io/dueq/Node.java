package io.dueq;

import io.dueq.Replies.Claimed;
import io.dueq.Replies.Granted;
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
 * A node at one partition: it beats, leads or stands by, promotes, reaps, and learns when to claim.
 * The lock of its consumer guards its state; no call is made under it.
 */
final class Node {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  /** The longest time for which a node relies on hints alone. */
  private static final long FALLBACK = millis(1_000);
  private static final long BEAT = millis(900);
  private static final long LEAD = millis(2_500);
  private static final long STRANDED = millis(2_500);
  private static final long TICK = 100_000;
  private static final long STANDBY = millis(25);
  private static final int PROMOTE = 256;
  private static final int REAP = 64;
  static final long NEVER = Long.MAX_VALUE;

  /** It should claim as soon as a handler is free; it does so. */
  boolean wanted;
  boolean claiming;
  final Partition partition;
  private final Servers servers;
  private final String id;
  private final Consumer host;
  private final ReentrantLock lock;
  private final Condition changed;
  private final Server.Stop end = new Server.Stop();
  private final Server.Stop endClaims = new Server.Stop();
  private CompletableFuture<Void> claims;
  private CompletableFuture<Void> beating;
  private final Alarm promote = new Alarm(this::promoteNow);
  private final Alarm reap = new Alarm(this::reapNow);
  private Reply newest;
  private long leadsUntil = Long.MIN_VALUE;
  /** When the last notice came. */
  private long heardAt = Long.MIN_VALUE;
  private long nodes = 1;
  private long reapAfterMs;
  private boolean beatNow;
  private int emptyClaims;
  private String moving = "";
  private long movingSince;
  private final Set<String> failing = new HashSet<>();

  Node(Servers servers, Partition partition, String id, Consumer host, ReentrantLock lock) {
    this.servers = servers;
    this.partition = partition;
    this.id = id;
    this.host = host;
    this.lock = lock;
    this.changed = lock.newCondition();
  }

  private static long millis(long ms) {
    return TimeUnit.MILLISECONDS.toNanos(ms);
  }

  /** Acts at a time. At most one act is under way, and of several times the earliest counts. Guarded by the lock. */
  private final class Alarm {
    private final LongSupplier act;
    private Runnable takeBack;
    private int armed; // tells a timer that it was taken back too late
    private long at = NEVER;
    private long sent = NEVER;
    private long next = NEVER;

    /** `act` runs without the lock, and returns when to act again, or NEVER. */
    Alarm(LongSupplier act) {
      this.act = act;
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
        if (own != armed || end.isStopped()) {
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
        failed("a timer", DueqException.of(error));
        again = Clock.now() + FALLBACK;
      }
      lock.lock();
      try {
        sent = NEVER;
        var later = Math.min(again, next);
        next = NEVER;
        if (later != NEVER && !end.isStopped()) {
          arm(later);
        }
      } finally {
        lock.unlock();
      }
    }
  }

  void start() {
    claims = CompletableFuture.allOf(CompletableFuture.runAsync(this::pops, Threads.POOL),
        CompletableFuture.runAsync(this::notices, Threads.POOL));
    beating = CompletableFuture.runAsync(this::beats, Threads.POOL);
  }

  /** Waits for no more messages, and returns the wake-up tokens that this node may have taken. */
  void stopClaiming() {
    endClaims.stop();
    lock.lock();
    try {
      wanted = false;
      promote.clear();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    claims.join();
    returnToken();
  }

  /** Stops the node, and tells the other nodes so. */
  void stop() {
    endClaims.stop();
    end.stop();
    lock.lock();
    try {
      promote.clear();
      reap.clear();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    claims.join();
    beating.join();
    try {
      partition.call("beat", "", List.of(id, "leave"));
    } catch (DueqException error) {
      LOG.log(System.Logger.Level.INFO, "the other nodes learn in 3 s that this one has stopped: " + error.getMessage());
    }
  }

  /** Tells what waits for a free handler. The caller holds the lock. */
  void wake() {
    changed.signalAll();
  }

  /** The caller holds the lock. */
  private void want() {
    if (!endClaims.isStopped()) {
      wanted = true;
      host.dispatch();
    }
  }

  private void locked(Runnable work) {
    lock.lock();
    try {
      work.run();
    } finally {
      lock.unlock();
    }
  }

  /** Claims up to `free` messages. */
  List<Granted> claim(int free, byte[] token, long leaseMs) {
    locked(() -> wanted = false);
    Reply reply = null;
    Claimed found = null;
    try {
      reply = claimPatiently(free, token, leaseMs);
      found = Replies.claim(reply);
    } catch (DueqException error) {
      failed("claim", error);
    }
    lock.lock();
    try {
      claiming = false;
      changed.signalAll();
      if (found == null) {
        beatNow = true; // the lost reply may have told of a head, and its tokens are gone: the next beat tells again
        return List.of();
      }
      saw(reply, false);
      var header = reply.header();
      var granted = found.granted();
      emptyClaims = granted.isEmpty() ? emptyClaims + 1 : 0;
      if (found.left() > 0 || header.isPassed(header.headMs())) {
        if (granted.size() == free) {
          want();
        } else if (!header.paused() && (!granted.isEmpty() || emptyClaims % 16 != 0)) {
          // Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
          Threads.after(millis(1), () -> locked(this::want));
        }
      }
      return granted;
    } finally {
      lock.unlock();
    }
  }

  /** Repeats a claim whose reply was lost with the same token, and so finds what it granted. */
  private Reply claimPatiently(int free, byte[] token, long leaseMs) {
    for (var patience = new Partition.Patience();; patience.pause()) {
      try {
        return partition.call("claim", "", List.of(free, token, leaseMs));
      } catch (DueqException error) {
        if ("HELD".equals(error.code())) {
          return partition.callPatiently("held", "", List.of(token));
        }
        if (!patience.allows(error, true)) {
          throw error;
        }
        failed("claim", error);
      }
    }
  }

  private void returnToken() {
    try {
      partition.call("claim", "", List.of(0, Partition.random(16), 1));
    } catch (DueqException error) {
      LOG.log(System.Logger.Level.INFO,
          "a wake-up token was not returned: other nodes look within a second: " + error.getMessage());
    }
  }

  /** Uses the header of a reply, unless a newer one was used. The caller holds the lock. */
  private void saw(Reply reply, boolean isBeat) {
    if (newest != null && !reply.isNewerThan(newest)) {
      return;
    }
    var header = reply.header();
    var known = newest == null ? header.incarnation() : newest.header().incarnation();
    if (!known.equals(header.incarnation())) {
      if (!known.isEmpty()) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue + " was emptied or replaced");
      }
      beatNow |= !known.isEmpty() || !isBeat; // the new queue has no leader yet
      changed.signalAll();
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
    if (headMs == null || endClaims.isStopped()) {
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
        want(); // a claim takes due messages, too
        return NEVER;
      }
    } finally {
      lock.unlock();
    }
    Reply reply;
    try {
      reply = partition.call("promote", "", List.of(PROMOTE));
    } catch (DueqException error) {
      failed("promote", error);
      return NEVER;
    }
    lock.lock();
    try {
      saw(reply, false);
      var header = reply.header();
      if (header.headMs() == null || header.paused()) {
        return NEVER;
      }
      if (!header.isPassed(header.headMs())) {
        return Math.max(promoteAt(header.headMs()), Clock.now() + TICK);
      }
      return Replies.integerAt("promote", reply, 0) == PROMOTE ? Clock.now() : NEVER;
    } finally {
      lock.unlock();
    }
  }

  private long reapNow() {
    lock.lock();
    try {
      var deadlineMs = newest == null ? null : newest.header().deadlineMs();
      if (deadlineMs == null) {
        return NEVER;
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
        return NEVER;
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
            want();
          }
          lookAfter(isLeader ? batch : "");
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

  private void pops() {
    var wake = partition.keys.wake();
    for (var pause = new Partition.Patience(); !endClaims.isStopped();) {
      lock.lock();
      try {
        while (!endClaims.isStopped() && (host.free() == 0 || wanted || claiming)) {
          changed.await();
        }
      } catch (InterruptedException error) {
        return;
      } finally {
        lock.unlock();
      }
      if (endClaims.isStopped()) {
        return;
      }
      try {
        var popped = servers.block(wake, List.of("BLPOP", wake, "1"), endClaims);
        pause = new Partition.Patience();
        if (popped == null) {
          continue;
        }
        lock.lock();
        var isFree = host.free() > 0;
        lock.unlock();
        if (isFree) {
          locked(this::want);
        } else {
          returnToken();
        }
      } catch (DueqException error) {
        if (!endClaims.isStopped()) {
          failed("BLPOP", error);
          pause.pause();
          locked(this::want); // the lost reply may have brought a token
        }
      }
    }
  }

  private void notices() {
    var notice = partition.keys.notice();
    while (!endClaims.isStopped()) {
      try {
        servers.follow(notice, (server, asking) -> {
          server.listen(notice, this::heard, endClaims, () -> servers.ofKey(notice) == server);
          return true;
        });
      } catch (DueqException error) {
        if (!endClaims.isStopped()) {
          failed("SSUBSCRIBE", error);
        }
      }
      lock.lock();
      try { // the beats bring the head meanwhile
        for (var left = FALLBACK; left > 0 && !endClaims.isStopped();) {
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
        beatNow = true;
        changed.signalAll();
      }
      if (text == null) {
        return;
      }
      if (text.isEmpty()) {
        headIs(null, false, true, NEVER);
      } else if (text.matches("\\d{1,15}") && partition.clock.isKnown()) {
        headIs(Long.parseLong(text), false, true, NEVER);
      }
    });
  }

  /** Ends a batch that stays on its way to another partition for 2.5 s: who moved it may be dead. Holds the lock. */
  private void lookAfter(String batch) {
    if (!moving.equals(batch)) {
      moving = batch;
      movingSince = Clock.now();
    }
    var epoch = newest.header().epoch();
    if (batch.isEmpty() || epoch == null || Clock.now() - movingSince < STRANDED) {
      return;
    }
    moving = "";
    Threads.run(() -> {
      try {
        endStranded(Replies.before(Replies.after(batch, " "), " "), "m" + epoch);
      } catch (DueqException error) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue
            + ": a batch stays on its way to another partition: " + error.getMessage());
      }
    });
  }

  private void endStranded(String tag, String fence) {
    var number = Replies.integerAt("depart", partition.call("depart", fence, List.of("", 0, tag, 5_000)), 0);
    if (number == 0) {
      return;
    }
    var arrived = new Partition(servers, partition.queue, tag)
        .callPatiently("arrive", fence, List.of(partition.tag, number, ""));
    var word = Replies.before(Replies.textAt("arrive", arrived, 0), " ");
    var verdict = word.equals("VOID") ? "back" : word.equals("APPLIED") ? "done" : null;
    if (verdict != null) {
      partition.callPatiently("depart", fence, List.of(verdict + "=" + number, 0, tag, 5_000));
    }
  }

  /** Logs the first error of an outage, and of each other kind. */
  private void failed(String what, DueqException error) {
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
