package io.dueq;

import static io.dueq.DueqException.invalid;
import static io.dueq.DueqException.unexpected;

import io.dueq.model.MessageEnd;
import io.dueq.model.StoredMessage;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/** Decodes the replies of scripts, and the results of their items. */
final class Replies {
  private static final Pattern NUMBER = Pattern.compile("\\d{1,18}");
  private static final Pattern SIGNED = Pattern.compile("-?\\d{1,18}");
  private static final Pattern MOMENT = Pattern.compile("(\\d{1,15})\\.(\\d{1,3})");

  private Replies() {}

  /** The first element of every reply. A head or deadline of null: nothing is scheduled or leased. */
  record Header(long nowUs, String incarnation, long seq, Long headMs, Long deadlineMs, boolean paused, Long epoch) {
    boolean isPassed(Long timeMs) {
      return timeMs != null && timeMs * 1_000 <= nowUs;
    }
  }

  /** A reply, and between which times of the monotonic clock the call was made, in nanoseconds. */
  record Reply(Header header, List<Object> body, long sent, long received) {
    /** By the rules of the protocol: calls use several connections, so replies overtake each other. */
    boolean isNewerThan(Reply old) {
      if (sent >= old.received) {
        return true;
      }
      var isSame = header.incarnation.equals(old.header.incarnation);
      return isSame && header.seq != old.header.seq ? header.seq > old.header.seq : header.nowUs > old.header.nowUs;
    }
  }

  private static final class WrongShape extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  static <T> T guarded(String verb, Object raw, Supplier<T> decode) {
    try {
      return decode.get();
    } catch (WrongShape | IndexOutOfBoundsException | NumberFormatException error) {
      throw unexpected(verb, raw);
    }
  }

  static Reply readReply(String verb, Object raw, long sent, long received) {
    return guarded(verb, raw, () -> {
      var all = list(raw);
      var head = list(all.get(0));
      var header = new Header(integer(head.get(0)), text(head.get(1)), integer(head.get(2)), time(integer(head.get(3))),
          time(integer(head.get(4))), integer(head.get(5)) != 0, head.size() > 6 ? (Long) integer(head.get(6)) : null);
      return new Reply(header, all.subList(1, all.size()), sent, received);
    });
  }

  @SuppressWarnings("unchecked")
  static List<Object> list(Object raw) {
    if (raw instanceof List<?> list) {
      return (List<Object>) list;
    }
    throw new WrongShape();
  }

  static long integer(Object raw) {
    if (raw instanceof Long number) {
      return number;
    }
    throw new WrongShape();
  }

  static byte[] bytes(Object raw) {
    if (raw instanceof byte[] bytes) {
      return bytes;
    }
    throw new WrongShape();
  }

  static String text(Object raw) {
    return new String(bytes(raw), StandardCharsets.UTF_8);
  }

  static long integerAt(String verb, Reply reply, int at) {
    return guarded(verb, reply.body, () -> integer(reply.body.get(at)));
  }

  static String textAt(String verb, Reply reply, int at) {
    return guarded(verb, reply.body, () -> text(reply.body.get(at)));
  }

  static List<String> textsAt(String verb, Reply reply, int at) {
    return guarded(verb, reply.body, () -> list(reply.body.get(at)).stream().map(Replies::text).toList());
  }

  /** A reply as an error text has it. */
  static String shown(Object raw) {
    if (raw instanceof byte[] bytes) {
      return new String(bytes, StandardCharsets.UTF_8);
    }
    return raw instanceof List<?> list ? list.stream().map(Replies::shown).toList().toString() : String.valueOf(raw);
  }

  static String before(String text, String separator) {
    var at = text.indexOf(separator);
    return at < 0 ? text : text.substring(0, at);
  }

  static String after(String text, String separator) {
    var at = text.indexOf(separator);
    return at < 0 ? "" : text.substring(at + separator.length());
  }

  /** A negative time other than -1 was not written by dueq: it counts as past, so that due work is not missed. */
  private static Long time(long ms) {
    return ms == -1 ? null : (Long) Math.max(ms, 0);
  }

  /** A message that a claim granted. */
  record Granted(byte[] id, byte[] payload, long dueMs, int attempt, int crashes, boolean isLastAttempt,
      String traceParent, Long expiresAtMs, int cost, int snoozes, boolean isTick) {}

  /** The number of ready messages that the claim left, and what it granted. */
  record Claimed(long left, List<Granted> granted) {}

  static Claimed claim(Reply reply) {
    return guarded("claim", reply.body, () -> {
      var ids = list(reply.body.get(2));
      var payloads = list(reply.body.get(3));
      var details = list(reply.body.get(4));
      var limit = reply.body.size() > 5 && reply.body.get(5) instanceof Long most ? most : 0;
      if (payloads.size() != ids.size() || details.size() != 1 && details.size() != ids.size()) {
        throw new WrongShape();
      }
      var granted = new ArrayList<Granted>();
      for (var at = 0; at < ids.size(); at += 1) {
        var detail = text(details.get(details.size() == 1 ? 0 : at));
        granted.add(grant(bytes(ids.get(at)), bytes(payloads.get(at)), detail, limit));
      }
      return new Claimed(integer(reply.body.get(0)), granted);
    });
  }

  private static Granted grant(byte[] id, byte[] payload, String detail, long queueLimit) {
    var parts = detail.split(" ", 3);
    if (parts.length < 2 || !SIGNED.matcher(parts[0]).matches() || !SIGNED.matcher(parts[1]).matches()) {
      throw new WrongShape();
    }
    var dueMs = Long.parseLong(parts[0]);
    var attempt = Long.parseLong(parts[1]);
    var found = words(parts.length > 2 ? parts[2] : "");
    var crashes = number(found, "crashes", 0);
    var limit = number(found, "max_attempts", queueLimit);
    var isLast = limit > 0 && limit <= Math.max(attempt - 1 - crashes, 0) + 1;
    var parent = found.getOrDefault("traceparent", "");
    // Handlers copy it into HTTP headers, so a malformed one is left out.
    return new Granted(id, payload, dueMs, (int) attempt, (int) crashes, isLast,
        Message.isTraceParent(parent) ? parent : null, expiry(found, dueMs), (int) number(found, "cost", 1),
        (int) number(found, "snoozes", 0), found.containsKey("tick"));
  }

  private static Map<String, String> words(String options) {
    var found = new HashMap<String, String>();
    for (var word : options.split(" ")) {
      found.put(before(word, "="), after(word, "="));
    }
    return found;
  }

  private static boolean isNumber(String word) {
    return NUMBER.matcher(word).matches();
  }

  private static long number(Map<String, String> found, String name, long missing) {
    var value = found.getOrDefault(name, "");
    return isNumber(value) ? Long.parseLong(value) : missing;
  }

  private static Long expiry(Map<String, String> found, long dueMs) {
    var by = number(found, "expires_by", 0);
    if (by != 0) {
      return by;
    }
    var expires = found.getOrDefault("expires", "");
    if (expires.startsWith("+") && isNumber(expires.substring(1))) {
      return dueMs + Long.parseLong(expires.substring(1));
    }
    return isNumber(expires) ? (Long) Long.parseLong(expires) : null;
  }

  /** The constant of an enumeration that has the protocol's word as its name in upper case. */
  static <T extends Enum<T>> T named(Class<T> type, String word) {
    for (var one : type.getEnumConstants()) {
      if (one.name().toLowerCase(Locale.ROOT).equals(word)) {
        return one;
      }
    }
    throw new WrongShape();
  }

  /** What `get` knows of an id: the message, or how it ended, or neither. */
  record Known(StoredMessage stored, MessageEnd end) {}

  static Known get(Reply reply, byte[] id) {
    return guarded("get", reply.body, () -> {
      var flat = list(reply.body.get(0));
      if (flat.isEmpty()) {
        if (reply.body.size() < 2) {
          return new Known(null, null);
        }
        var until = integer(reply.body.get(3));
        var kind = named(MessageEnd.Kind.class, text(reply.body.get(1)));
        return new Known(null, new MessageEnd(kind, integer(reply.body.get(2)), optional(until == 0 ? null : until)));
      }
      var fields = new HashMap<String, Object>();
      for (var at = 0; at < flat.size(); at += 2) {
        fields.put(text(flat.get(at)), flat.get(at + 1));
      }
      var found = words(text(fields.get("options")));
      var most = (int) number(found, "max_attempts", 0);
      var stored = new StoredMessage(Message.shown(id), named(StoredMessage.State.class, text(fields.get("state"))),
          integer(fields.get("time_ms")), (int) integer(fields.get("failures")), (int) integer(fields.get("crashes")),
          most == 0 ? OptionalInt.empty() : OptionalInt.of(most), (int) number(found, "cost", 1),
          text(fields.get("error")), bytes(fields.get("payload")),
          optional(fields.containsKey("next_due") ? (Long) integer(fields.get("next_due")) : null));
      return new Known(stored, null);
    });
  }

  static OptionalLong optional(Long value) {
    return value == null ? OptionalLong.empty() : OptionalLong.of(value);
  }

  /** A decoded item result: its outcome, and its time or state if it has one. */
  record Result(String outcome, Long ms, StoredMessage.State state) {}

  /** The outcomes of a verb by their words, and the words that have a time behind them. */
  private record Words(Map<String, String> outcomes, Set<String> timed) {
    Words(Map<String, String> outcomes, String... timed) {
      this(outcomes, Set.of(timed));
    }
  }

  private static final Words PUSH = new Words(Map.of("CREATED", "created", "EXISTS", "exists", "MOVED", "moved",
      "NEXT", "next", "REMEMBERED", "remembered", "FINISHED", "finished", "USED", "finished"), "REMEMBERED");
  private static final Words DONE = new Words(Map.of("OK", "done", "GONE", "gone", "LOST", "lost"));
  private static final Words UNTIL = new Words(Map.of("OK", "until", "GONE", "gone", "LOST", "lost"), "OK");
  private static final Words RETRY = new Words(Map.of("SCHEDULED", "scheduled", "DEAD", "dead", "DROPPED", "dropped",
      "GONE", "gone", "LOST", "lost"), "SCHEDULED");
  private static final Map<String, Words> RESULTS = Map.ofEntries(
      Map.entry("push", PUSH), Map.entry("upsert", PUSH), Map.entry("ack_push", PUSH),
      Map.entry("cancel", new Words(
          Map.of("CANCELLED", "cancelled", "LEASED", "leased", "DEAD", "dead", "ABSENT", "absent"))),
      Map.entry("reschedule", new Words(Map.of("MOVED", "moved", "CONFLICT", "conflict", "LEASED", "leased",
          "DEAD", "dead", "ABSENT", "absent"), "MOVED", "CONFLICT")),
      Map.entry("run_now", new Words(Map.of("MOVED", "moved", "ALREADY", "already", "LEASED", "leased",
          "DEAD", "dead", "ABSENT", "absent"))),
      Map.entry("ack", DONE), Map.entry("again", DONE), Map.entry("release", DONE), Map.entry("bury", DONE),
      Map.entry("retry", RETRY), Map.entry("snooze", RETRY), Map.entry("throttle", UNTIL), Map.entry("extend", UNTIL));

  /** Decodes the result of one item, such as {@code EXISTS scheduled}. Throws if the item was refused. */
  static Result result(String verb, String line) {
    var word = before(line, " ");
    var detail = after(line, " ");
    var words = RESULTS.get(verb);
    var outcome = words.outcomes.get(word);
    if (outcome == null) {
      throw refusal(verb, word, detail);
    }
    if (words.timed.contains(word)) {
      if (!isNumber(detail)) {
        throw unexpected(verb, line);
      }
      return new Result(outcome, Long.parseLong(detail), null);
    }
    if (outcome.equals("exists")) {
      return guarded(verb, line, () -> new Result(outcome, null, named(StoredMessage.State.class, detail)));
    }
    return new Result(word.equals("CANCELLED") && detail.equals("next") ? "next" : outcome, null, null);
  }

  private static DueqException refusal(String verb, String word, String detail) {
    if (word.equals("INVALID")) {
      return invalid(detail, detail.startsWith("payload has ") ? "TOO_LARGE" : null);
    }
    if (word.equals("FULL")) {
      var what = detail.startsWith("this queue may remember") ? "push with shorter windows" : "work it off";
      return new DueqException(DueqException.Kind.FULL, DueqException.Applied.NO,
          "FULL: " + detail + "; " + what + ", or raise the limit: dueq configure QUEUE");
    }
    return unexpected(verb, word + " " + detail);
  }

  /** What becomes of the result of a push. */
  enum Verdict { FINAL, AGAIN, UNKNOWN }

  static Verdict verdict(String line, boolean repeated, long latestStartUs) {
    var word = before(line, " ");
    if (!word.equals("FINISHED") && !word.equals("EXPIRED")) {
      return Verdict.FINAL;
    }
    if (!repeated) {
      // The estimate of the server's clock was wrong, or another client changed a message of this id meanwhile.
      return Verdict.AGAIN;
    }
    if (word.equals("EXPIRED")) {
      return Verdict.UNKNOWN;
    }
    var moment = MOMENT.matcher(after(line, " "));
    var isBefore = moment.matches()
        && Long.parseLong(moment.group(1)) * 1_000 + Long.parseLong(moment.group(2)) <= latestStartUs;
    return isBefore ? Verdict.UNKNOWN : Verdict.FINAL;
  }
}
