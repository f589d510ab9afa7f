package io.dueq;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A period with a name, a payload and policies. Redis makes a <em>tick</em> at each fire: a message
 * {@code NAME@<fire in ms>}. The server judges the values. Crons are declared by the program or by Rust, which know the
 * time zones.
 */
public final class Schedule {
  /** Which of several due fires become ticks, after a time without workers. */
  public enum Missed { ONE, SKIP, ALL }

  /** What a fire does while an earlier tick waits or is leased. */
  public enum Overlap { ALLOW, SKIP, REPLACE }

  private static final int MOST_MISSED = 1_000;

  final String name;
  private byte[] payload = {};
  /** The words of the period and of the messages, in their order. A default value is no word. */
  private final Map<String, Object> spec = new LinkedHashMap<>();
  private final Map<String, Object> options = new LinkedHashMap<>();

  private Schedule(String name, Duration every) {
    this.name = name;
    for (var word : List.of("every", "anchor", "missed", "within", "max", "overlap", "jitter", "start", "end", "limit")) {
      spec.put(word, null);
    }
    for (var word : List.of("max_attempts", "expires", "on_expire")) {
      options.put(word, null);
    }
    spec.put("every", Message.millis(every));
  }

  /** A schedule that fires each time this period has passed. */
  public static Schedule every(String name, Duration period) {
    return new Schedule(name, period);
  }

  public Schedule payload(String value) {
    return payload(Message.encoded(value));
  }

  public Schedule payload(byte[] value) {
    payload = value.clone();
    return this;
  }

  private Schedule with(Map<String, Object> words, String word, Object value) {
    words.put(word, value);
    return this;
  }

  private static <T extends Enum<T>> String word(T value, T standard) {
    return value == standard ? null : value.name().toLowerCase(Locale.ROOT);
  }

  /** A time at which it fires, from which the others are counted. */
  public Schedule anchor(Instant value) {
    return with(spec, "anchor", Message.unixMs(value));
  }

  /** ONE without it. */
  public Schedule missed(Missed value) {
    return with(spec, "missed", word(value, Missed.ONE));
  }

  /** Drops fires that are older. */
  public Schedule within(Duration value) {
    return with(spec, "within", Message.millis(value));
  }

  /** With Missed.ALL: the newest so many fires; 1,000 without it. */
  public Schedule max(int value) {
    return with(spec, "max", value == MOST_MISSED ? null : value);
  }

  /** ALLOW without it. */
  public Schedule overlap(Overlap value) {
    return with(spec, "overlap", word(value, Overlap.ALLOW));
  }

  /** Ticks are due up to so much after their fire. */
  public Schedule jitter(Duration value) {
    return with(spec, "jitter", value.isZero() ? null : Message.millis(value));
  }

  public Schedule start(Instant value) {
    return with(spec, "start", Message.unixMs(value));
  }

  public Schedule end(Instant value) {
    return with(spec, "end", Message.unixMs(value));
  }

  /** It ends after so many fires. */
  public Schedule limit(long value) {
    return with(spec, "limit", value);
  }

  public Schedule maxAttempts(int value) {
    return with(options, "max_attempts", value);
  }

  public Schedule expiresAfter(Duration value) {
    return with(options, "expires", "+" + Message.millis(value));
  }

  public Schedule onExpire(Message.OnExpire value) {
    return with(options, "on_expire", word(value, Message.OnExpire.DEAD));
  }

  /** The arguments of the script. */
  List<Object> words() {
    return List.of(name, joined(spec), "", joined(options), "", payload);
  }

  private static String joined(Map<String, Object> words) {
    var found = new ArrayList<String>();
    words.forEach((word, value) -> {
      if (value != null) {
        found.add(word + "=" + value);
      }
    });
    return String.join(" ", found);
  }
}
