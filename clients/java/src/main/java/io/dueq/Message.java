package io.dueq;

import static io.dueq.DueqException.invalid;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;
import java.util.zip.CRC32;

/** A message to push: its payload and its options. A push checks it before anything is sent. */
public final class Message {
  /** What a push does if its id waits already. */
  public enum OnConflict {
    /** The push changes nothing. */
    KEEP,
    /** The message gets the due time of the push. */
    RESCHEDULE,
    /** The message gets the due time, the payload and the options of the push. */
    REPLACE,
    /** As REPLACE; of a message that a handler has, the new one follows its delivery. */
    NEXT
  }

  /** What becomes of a message that expires. */
  public enum OnExpire { DEAD, DROP }

  /** A checked message, as scripts take it. */
  record Encoded(byte[] id, String verb, boolean repeatable, List<Object> words) {}

  static final long MAX_DELAY_MS = 3_155_760_000_000L; // 100 years
  private static final long MAX_WINDOW_MS = 2_592_000_000L; // 30 days
  private static final int MAX_PAYLOAD_BYTES = 16 * 1024 * 1024;
  private static final Pattern TRACE_PARENT =
      Pattern.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}");

  private final byte[] payload;
  private byte[] id;
  private Duration delay;
  private Instant due;
  private Duration spread;
  private Integer maxAttempts;
  private OnConflict onConflict = OnConflict.KEEP;
  private String traceParent;
  private Duration expiresAfter;
  private Instant expiresAt;
  private OnExpire onExpire = OnExpire.DEAD;
  private Integer cost;
  private Duration window;
  private boolean reuse;
  private Duration maxWait;
  private boolean revive;
  private Long undoMs;

  private Message(byte[] payload) {
    this.payload = payload;
  }

  public static Message of(byte[] payload) {
    return new Message(given("a payload", payload).clone());
  }

  /** Text is sent as UTF-8. */
  public static Message of(String payload) {
    return new Message(encoded(given("a payload", payload)));
  }

  /** 1 to 200 bytes without control bytes. Without one each push makes one. */
  public Message id(String value) {
    return id(encoded(given("an id", value)));
  }

  public Message id(byte[] value) {
    id = given("an id", value).clone();
    return this;
  }

  /** The message is due this long after the server has it. A fraction of a millisecond is rounded up. */
  public Message delay(Duration value) {
    delay = value;
    return this;
  }

  /** The message is due at this moment, by the server's clock. */
  public Message due(Instant value) {
    due = value;
    return this;
  }

  /** The message is due up to this much later, by its id: for many messages of one due time. */
  public Message spread(Duration value) {
    spread = value;
    return this;
  }

  /** After how many failed attempts the message is dead; without it the queue's limit, which is 20 by default. */
  public Message maxAttempts(int value) {
    maxAttempts = value;
    return this;
  }

  /** What the push does if a message of this id waits already; KEEP without it. */
  public Message onConflict(OnConflict value) {
    onConflict = value;
    return this;
  }

  /** The W3C traceparent of the push, which the handler gets. */
  public Message traceParent(String value) {
    traceParent = value;
    return this;
  }

  /** No attempt starts later than this after the due time. */
  public Message expiresAfter(Duration value) {
    expiresAfter = value;
    return this;
  }

  /** No attempt starts after this moment. */
  public Message expiresAt(Instant value) {
    expiresAt = value;
    return this;
  }

  /** What becomes of a message that expires; DEAD without it. */
  public Message onExpire(OnExpire value) {
    onExpire = value;
    return this;
  }

  /** How much of the queue's rate each attempt uses; 1 without it. */
  public Message cost(int value) {
    cost = value;
    return this;
  }

  /** For this long from the push, no other push stores a message of this id; 30 days at most. */
  public Message window(Duration value) {
    window = value;
    return this;
  }

  /** Stores the message although the window of an earlier push remembers its id. */
  public Message reuse(boolean value) {
    reuse = value;
    return this;
  }

  /** How far later pushes of this id can postpone the message, from its first push on. */
  public Message maxWait(Duration value) {
    maxWait = value;
    return this;
  }

  /** Replaces a dead message of this id too; with REPLACE or NEXT. */
  public Message revive(boolean value) {
    revive = value;
    return this;
  }

  /** Stores the message only if nothing happened to its id since a cancel at this server time, at most 12 s ago. */
  public Message undoMs(long value) {
    undoMs = value;
    return this;
  }

  private static <T> T given(String what, T value) {
    if (value == null) {
      throw invalid(what + " is a String or byte[], not null");
    }
    return value;
  }

  /** The start of a text for a message: in quotes, on one line. */
  static String quoted(String text) {
    var start = new StringBuilder("\"");
    text.chars().limit(40).forEach(one -> {
      if (Character.isISOControl(one)) {
        start.append(String.format("\\u%04x", one));
      } else {
        start.append((char) one);
      }
    });
    return start.append('"').toString();
  }

  /** Checks it. `missingId` is its id if it has none. */
  Encoded encode(byte[] missingId) {
    if (payload.length > MAX_PAYLOAD_BYTES) {
      throw invalid("the payload has " + payload.length + " bytes, no queue takes more than " + MAX_PAYLOAD_BYTES,
          "TOO_LARGE");
    }
    var checked = checkedId(id != null ? id : missingId != null ? missingId : Ids.next());
    var word = spreadWord(dueWord(delay, due), checked);
    var isUpsert = onConflict != OnConflict.KEEP;
    // A repeated push with `next` changes nothing if the first one was applied.
    var repeatable = !isUpsert || onConflict == OnConflict.NEXT;
    List<Object> words = List.of(checked, word, payload, String.join(" ", options(word)));
    return new Encoded(checked, isUpsert ? "upsert" : "push", repeatable, words);
  }

  private List<String> options(String dueWord) {
    var found = new ArrayList<String>();
    if (maxAttempts != null) {
      found.add("max_attempts=" + within("maxAttempts", maxAttempts, 1_000_000));
    }
    if (onConflict != OnConflict.KEEP) {
      found.add("on_conflict=" + onConflict.name().toLowerCase(Locale.ROOT));
    }
    if (traceParent != null) {
      if (!isTraceParent(traceParent)) {
        throw invalid("traceParent is not a W3C traceparent of version 00");
      }
      found.add("traceparent=" + traceParent);
    }
    if (expiresAfter != null && expiresAt != null) {
      throw invalid("a message has expiresAfter or expiresAt, not both");
    }
    if (expiresAfter != null) {
      found.add("expires=+" + within("expiresAfter", millis(expiresAfter), MAX_DELAY_MS));
    } else if (expiresAt != null) {
      found.add("expires=" + unixMs(expiresAt));
    }
    if (onExpire == OnExpire.DROP) {
      if (expiresAfter == null && expiresAt == null) {
        throw invalid("onExpire is set and the message does not expire: set expiresAfter or expiresAt too");
      }
      found.add("on_expire=drop");
    }
    if (cost != null && within("cost", cost, 1_000_000) != 1) { // the default is left out: a stored option takes memory
      found.add("cost=" + cost);
    }
    if (window != null) {
      found.add("window=" + within("window", millis(window), MAX_WINDOW_MS));
    }
    if (maxWait != null) {
      var wait = within("maxWait", millis(maxWait), MAX_DELAY_MS);
      if (onConflict == OnConflict.KEEP) {
        throw invalid("maxWait needs an onConflict other than KEEP");
      }
      if (dueWord.startsWith("+") && Long.parseLong(dueWord.substring(1)) > wait) {
        throw invalid("the delay is longer than maxWait");
      }
      found.add("max_wait=" + wait);
    }
    if (reuse) {
      found.add("reuse");
    }
    if (revive) {
      if (onConflict != OnConflict.REPLACE && onConflict != OnConflict.NEXT) {
        throw invalid("revive needs onConflict REPLACE or NEXT");
      }
      found.add("revive");
    }
    if (undoMs != null) {
      found.add("undo=" + undoMs);
    }
    return found;
  }

  /** Adds a part of the window that depends on the id alone, so that a repetition asks for the same time. */
  private String spreadWord(String word, byte[] ofId) {
    if (spread == null) {
      return word;
    }
    var crc = new CRC32();
    crc.update("spread".getBytes(StandardCharsets.UTF_8));
    crc.update(ofId);
    var isDelay = word.startsWith("+");
    var later = crc.getValue() % (millis(spread) + 1);
    return (isDelay ? "+" : "") + (Long.parseLong(isDelay ? word.substring(1) : word) + later);
  }

  /** The due time as the scripts read it: {@code +MS} or Unix milliseconds. */
  static String dueWord(Duration delay, Instant due) {
    if (due != null) {
      if (delay != null) {
        throw invalid("a message has a delay or a due time, not both");
      }
      return String.valueOf(unixMs(due));
    }
    return "+" + (delay == null ? 0 : delayMs(delay));
  }

  static long delayMs(Duration delay) {
    var ms = millis(delay);
    if (ms > MAX_DELAY_MS) {
      throw invalid("the delay is " + ms + " ms, it must be 0 to " + MAX_DELAY_MS + " (100 years)");
    }
    return ms;
  }

  static long within(String name, long number, long most) {
    if (number < 1 || number > most) {
      throw invalid(name + " is " + number + ", it must be a whole number from 1 to " + most);
    }
    return number;
  }

  /** Rounded up to whole milliseconds, so that nothing is early. */
  static long millis(Duration time) {
    if (time.isNegative() || time.getSeconds() >= 1_000_000_000_000L) {
      throw invalid("a time is 0 ms to 100 years, not " + time);
    }
    return Math.addExact(time.getSeconds() * 1_000, (time.getNano() + 999_999) / 1_000_000);
  }

  static long unixMs(Instant moment) {
    var ms = moment.getEpochSecond() >= 0 && moment.getEpochSecond() < 1_000_000_000_000L
        ? moment.getEpochSecond() * 1_000 + (moment.getNano() + 999_999) / 1_000_000 : -1;
    if (ms < 0) {
      throw invalid("a moment is from 1970 to the year 33000, not " + moment);
    }
    return ms;
  }

  static boolean isTraceParent(String text) {
    return TRACE_PARENT.matcher(text).matches();
  }

  /** The bytes of a text. A lone surrogate from U+DC80 on is the byte that {@link #shown} could not decode. */
  static byte[] encoded(String text) {
    var at = 0;
    while (at < text.length() && !Character.isSurrogate(text.charAt(at))) {
      at += 1;
    }
    if (at == text.length()) {
      return text.getBytes(StandardCharsets.UTF_8);
    }
    var bytes = new ByteArrayOutputStream();
    text.codePoints().forEach(one -> {
      if (one >= 0xdc80 && one <= 0xdcff) {
        bytes.write(one - 0xdc00);
      } else {
        bytes.writeBytes(Character.toString(one).getBytes(StandardCharsets.UTF_8));
      }
    });
    return bytes.toByteArray();
  }

  /** An id as text. {@link #encoded} gives the same bytes back, also if they are no UTF-8. */
  static String shown(byte[] id) {
    var whole = new String(id, StandardCharsets.UTF_8);
    if (whole.indexOf('\ufffd') < 0) { // nothing was replaced
      return whole;
    }
    var text = new StringBuilder();
    for (var at = 0; at < id.length;) {
      String part = null;
      var length = 0;
      while (part == null && length < 4 && at + length < id.length) {
        length += 1;
        part = decoded(id, at, length);
      }
      text.append(part != null ? part : String.valueOf((char) (0xdc00 + (id[at] & 0xff))));
      at += part != null ? length : 1;
    }
    return text.toString();
  }

  private static String decoded(byte[] bytes, int from, int length) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, length)).toString();
    } catch (CharacterCodingException error) {
      return null;
    }
  }

  static byte[] checkedId(byte[] id) {
    var isBad = id.length < 1 || id.length > 200;
    for (var one : id) {
      isBad |= one >= 0 && one < 0x20 || one == 0x7f;
    }
    if (isBad) {
      throw invalid("message id " + quoted(shown(id)) + " of " + id.length
          + " bytes: an id has 1 to 200 bytes, none of them a control byte");
    }
    return id;
  }
}
