package io.dueq;

import io.dueq.DueqException.Applied;
import io.dueq.Replies.Reply;
import io.dueq.Routes.Keys;
import io.dueq.Routes.PartitionMap;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** One partition: its keys, the clock of its server, and the calls of scripts there. Its methods block. */
final class Partition {
  /** How long a call is repeated before its error is reported. */
  static final long PATIENCE = TimeUnit.SECONDS.toNanos(10);
  /** From this uncertainty of the server's clock on, its time is asked for. */
  private static final long UNSURE = TimeUnit.SECONDS.toNanos(1);
  private static final SecureRandom RANDOM = new SecureRandom();

  final String queue;
  final String tag;
  final Keys keys;
  final Clock clock = new Clock();
  private final Servers servers;

  Partition(Servers servers, String queue, String tag) {
    this.servers = servers;
    this.queue = queue;
    this.tag = tag;
    this.keys = Keys.of(queue, tag);
  }

  static byte[] random(int bytes) {
    var made = new byte[bytes];
    RANDOM.nextBytes(made);
    return made;
  }

  /** The repetitions of one call: for 10 s, with pauses from 10 ms, doubling up to 500 ms. */
  static final class Patience {
    private final long end = Clock.now() + PATIENCE;
    private long next = 10;

    /** Whether a call that ended with this error may be sent again. */
    boolean allows(DueqException error, boolean repeatable) {
      var isHarmless = repeatable || error.applied() == Applied.NO;
      return isHarmless && error.isOutage() && !error.isRemapped() && Clock.now() < end;
    }

    void pause() {
      sleep((long) (next * (0.5 + ThreadLocalRandom.current().nextDouble() / 2)));
      next = Math.min(next * 2, 500);
    }
  }

  static void sleep(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** What makes the tries of one push recognisable: all of them send the same argument. */
  record Attempt(String argument, long latestStartUs) {
    static Attempt of(Clock clock) {
      var now = Clock.now();
      // From the earliest time at which the first try may begin: then no message that ended before is taken for it.
      var untilUs = clock.earliestUs(now) + PATIENCE / 1_000;
      var argument = String.format("%d.%03d %s", untilUs / 1_000, untilUs % 1_000, HexFormat.of().formatHex(random(12)));
      return new Attempt(argument, clock.latestUs(now));
    }
  }

  /** One try of a call. */
  Reply call(String verb, String fence, List<?> arguments) {
    return callDurably(null, verb, fence, arguments).reply();
  }

  /** A reply, and what has not confirmed it, or the error of the wait; null if nothing is missing. */
  record Confirmed(Reply reply, DueqException missing) {}

  Confirmed callDurably(Durability durability, String verb, String fence, List<?> arguments) {
    var words = new ArrayList<Object>(1 + arguments.size());
    words.add(fence);
    words.addAll(arguments);
    var sent = Clock.now();
    var raw = durability == null ? new Server.Confirmed(servers.run(verb, keys.ten(), words), null)
        : servers.runDurably(verb, keys.ten(), words, durability);
    var reply = Replies.readReply(verb, raw.reply(), sent, Clock.now());
    clock.observe(sent, reply.received(), reply.header().nowUs());
    return new Confirmed(reply, raw.missing());
  }

  /** Repeats a call that may be repeated, for up to 10 s. */
  Reply callPatiently(String verb, String fence, List<?> arguments) {
    var patience = new Patience();
    for (var isUnknown = false;; patience.pause()) {
      try {
        return call(verb, fence, arguments);
      } catch (DueqException error) {
        if (!patience.allows(error, true)) {
          throw isUnknown ? error.ofRepeated() : error;
        }
        isUnknown |= error.applied() != Applied.NO;
      }
    }
  }

  /** Asks the server for its time, unless the clock is known well enough. */
  void learnTime(boolean again) {
    var sent = Clock.now();
    if (again || !clock.isKnown() || clock.spread(sent) > UNSURE) {
      var time = Replies.list(ask(List.of("TIME")));
      var seconds = Long.parseLong(Replies.text(time.get(0)));
      clock.observe(sent, Clock.now(), seconds * 1_000_000 + Long.parseLong(Replies.text(time.get(1))));
    }
  }

  /** The map in this partition's meta; null without one. */
  PartitionMap readMap() {
    var map = ask(List.of("HGET", keys.meta(), "map"));
    return map == null ? null : PartitionMap.parse(queue, Replies.text(map));
  }

  /** A command that changes nothing, and so was not applied if it fails. */
  private Object ask(List<?> words) {
    try {
      return servers.call(keys.meta(), words);
    } catch (DueqException error) {
      throw error.as(Applied.NO);
    }
  }
}
