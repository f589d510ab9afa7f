package io.dueq;

import io.dueq.Replies.Claimed;
import io.dueq.Replies.Granted;
import io.dueq.Replies.Reply;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** The claims of a node: wake-up tokens and replies tell when to make one. Guarded by the lock of the consumer. */
final class Claims {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  /** How long a claim that left messages waits for the next one. */
  private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(1);

  private final Node node;
  private final Servers servers;
  private final Partition partition;
  private final Consumer host;
  private final ReentrantLock lock;
  private final Condition mayWait;
  private final Server.Stop end = new Server.Stop();
  private boolean wanted;
  private boolean isUrgent;
  private boolean isUnderWay;
  private int empty; // claims in succession that granted nothing

  Claims(Node node, Servers servers, Partition partition, Consumer host, ReentrantLock lock) {
    this.node = node;
    this.servers = servers;
    this.partition = partition;
    this.host = host;
    this.lock = lock;
    this.mayWait = lock.newCondition();
  }

  boolean isStopped() {
    return end.isStopped();
  }

  Server.Stop end() {
    return end;
  }

  /** Whether to claim as soon as a handler is free. */
  boolean isWanted() {
    return wanted && !isUnderWay;
  }

  /** Whether the claim should not wait for more free handlers: it is not known that the queue has many messages. */
  boolean isUrgent() {
    return isUrgent;
  }

  void begin() {
    isUnderWay = true;
    wanted = false;
    isUrgent = false;
  }

  void want(boolean urgent) {
    if (!end.isStopped()) {
      wanted = true;
      isUrgent |= urgent;
      host.dispatch();
    }
  }

  /** Lets the node wait for a wake-up token if a handler is free and no claim will be made. */
  void wake() {
    if (host.free() > 0 && !wanted && !isUnderWay) {
      mayWait.signal();
    }
  }

  /** Ends the wait for tokens; the caller does not hold the lock. */
  void stop() {
    end.stop();
    lock.lock();
    try {
      wanted = false;
      mayWait.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** What a claim got, and when its lease began at the earliest. */
  record Lot(List<Granted> granted, long began) {}

  private record Answer(Reply reply, long began) {}

  /** Claims up to `free` messages, after {@link #begin}. */
  Lot claim(int free, byte[] token, long leaseMs) {
    Answer answer = null;
    Claimed found = null;
    try {
      answer = claimPatiently(free, token, leaseMs);
      found = Replies.claim(answer.reply);
    } catch (DueqException error) {
      node.failed("claim", error);
    }
    lock.lock();
    try {
      isUnderWay = false;
      if (found == null) {
        node.beatNow(); // the lost reply may have told of a head, and its tokens are gone: the next beat tells again
        return new Lot(List.of(), 0);
      }
      node.saw(answer.reply, false);
      var header = answer.reply.header();
      var granted = found.granted();
      empty = granted.isEmpty() ? empty + 1 : 0;
      if (found.left() > 0 || header.isPassed(header.headMs())) {
        if (granted.size() == free) {
          want(false);
        } else if (!header.paused() && (!granted.isEmpty() || empty % 16 != 0)) {
          // Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
          Threads.after(PAUSE, () -> wantNow());
        }
      }
      return new Lot(granted, answer.began);
    } finally {
      lock.unlock();
    }
  }

  private void wantNow() {
    lock.lock();
    try {
      want(true);
    } finally {
      lock.unlock();
    }
  }

  /** Repeats a claim whose reply was lost with the same token, and so finds what it granted. */
  private Answer claimPatiently(int free, byte[] token, long leaseMs) {
    var first = Clock.now();
    for (var patience = new Partition.Patience();; patience.pause()) {
      try {
        var reply = partition.call("claim", "", List.of(free, token, leaseMs));
        return new Answer(reply, reply.sent());
      } catch (DueqException error) {
        if ("HELD".equals(error.code())) {
          return new Answer(partition.callPatiently("held", "", List.of(token)), first);
        }
        if (!patience.allows(error, true)) {
          throw error;
        }
        node.failed("claim", error);
      }
    }
  }

  /** Gives back a wake-up token that this node may have taken. */
  void returnToken() {
    try {
      partition.call("claim", "", List.of(0, Partition.random(16), 1));
    } catch (DueqException error) {
      LOG.log(System.Logger.Level.INFO,
          "a wake-up token was not returned: other nodes look within a second: " + error.getMessage());
    }
  }

  /** Waits for wake-up tokens while a handler is free, until the stop. */
  void awaitTokens() {
    var wake = partition.keys.wake();
    for (var pause = new Partition.Patience(); awaitFree();) {
      try {
        var popped = servers.block(wake, List.of("BLPOP", wake, "1"), end);
        pause = new Partition.Patience();
        if (popped == null) {
          continue;
        }
        lock.lock();
        var isFree = host.free() > 0;
        lock.unlock();
        if (isFree) {
          wantNow();
        } else {
          returnToken();
        }
      } catch (DueqException error) {
        if (!end.isStopped()) {
          node.failed("BLPOP", error);
          pause.pause();
          wantNow(); // the lost reply may have brought a token
        }
      }
    }
  }

  /** Returns false at the stop. */
  private boolean awaitFree() {
    lock.lock();
    try {
      while (!end.isStopped() && (host.free() == 0 || wanted || isUnderWay)) {
        mayWait.await();
      }
      return !end.isStopped();
    } catch (InterruptedException error) {
      return false; // nobody interrupts threads of this library
    } finally {
      lock.unlock();
    }
  }
}
