package io.dueq;

import static io.dueq.DueqException.invalid;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * What must confirm pushes, cancels, reschedules and runNow of a queue: see {@link Queue#durability}.
 * If fewer confirm in time, a call fails with UNCONFIRMED: the master has made the change and may lose it.
 * The same call again waits again.
 */
public record Durability(String command, boolean local, int replicas, long timeoutMs) {
  private static final long MAX_TIMEOUT_MS = 60_000;
  private static final Map<String, Set<String>> CHANGES = Map.of("push", Set.of("CREATED", "EXISTS", "MOVED", "NEXT"),
      "upsert", Set.of("CREATED", "EXISTS", "MOVED", "NEXT"), "cancel", Set.of("CANCELLED"),
      "reschedule", Set.of("MOVED"), "run_now", Set.of("MOVED", "ALREADY"));

  public Durability {
    if (replicas < 0 || replicas == 0 && !local) {
      throw invalid("a durability with " + replicas + " replicas waits for nothing");
    }
    Message.within("the timeout of a durability in ms", timeoutMs, MAX_TIMEOUT_MS);
  }

  /** The memory of so many replicas (WAIT), within 1 ms to a minute. */
  public static Durability replicated(int replicas, Duration timeout) {
    return new Durability("WAIT", false, replicas, Message.millis(timeout));
  }

  /** The disk of the master if `local`, and those of so many replicas (WAITAOF of Redis 7.2 and Valkey). */
  public static Durability fsynced(boolean local, int replicas, Duration timeout) {
    return new Durability("WAITAOF", local, replicas, Message.millis(timeout));
  }

  /** The command that waits; as a probe it only finds out whether the server can wait. */
  List<Object> words(boolean isProbe) {
    var words = new ArrayList<Object>(List.of(command));
    if (command.equals("WAITAOF")) {
      words.add(local ? 1 : 0);
    }
    words.add(isProbe ? 0 : replicas);
    words.add(isProbe ? 1 : timeoutMs);
    return words;
  }

  /** What has not confirmed, by the answer to the command; null if nothing is missing. */
  String shortfall(Object answer) {
    var counts = answer instanceof List<?> list ? list : List.of(1L, answer);
    if (counts.size() != 2 || !(counts.get(0) instanceof Long own) || !(counts.get(1) instanceof Long others)) {
      return command + " answered " + Replies.shown(answer);
    }
    var missing = new ArrayList<String>();
    if (local && own < 1) {
      missing.add("the master's disk did not confirm it");
    }
    if (others < replicas) {
      missing.add("only " + others + " of " + replicas + " replicas confirmed it");
    }
    return missing.isEmpty() ? null : String.join(" and ", missing) + " within " + timeoutMs + " ms";
  }

  /** Why a server cannot wait, by its error; null if it is another error. */
  static String unfit(String detail) {
    var text = detail.toLowerCase(Locale.ROOT);
    return text.contains("unknown command") ? "waiting for disks needs WAITAOF: Redis 7.2 or newer, or Valkey"
        : text.contains("appendonly is disabled") ? "it keeps no append-only file: CONFIG SET appendonly yes" : null;
  }

  /** Whether a result must be confirmed before its caller gets it, also one of a change made before. */
  static boolean isChange(String verb, String text) {
    return CHANGES.get(verb).contains(Replies.before(text, " "));
  }
}
