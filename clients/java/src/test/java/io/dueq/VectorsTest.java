package io.dueq;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.Routes.Keys;
import io.dueq.Routes.PartitionMap;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Runs the vectors that a test of the Rust library checks: clients/vectors. */
class VectorsTest {
  @SuppressWarnings("unchecked")
  private static List<Map<String, Object>> vectors(String name) throws IOException {
    var lines = new ArrayList<Map<String, Object>>();
    for (var line : Files.readAllLines(Path.of("../vectors", name + ".jsonl"))) {
      lines.add((Map<String, Object>) Json.read(line));
    }
    assertTrue(lines.size() > 5);
    return lines;
  }

  private static Map<String, Object> fault(DueqException error) {
    var found = new HashMap<String, Object>();
    found.put("kind", word(error.kind()));
    found.put("applied", word(error.applied()));
    found.put("code", error.code());
    found.put("retryable", error.retryable());
    return found;
  }

  private static String word(Enum<?> value) {
    return value == null ? null : value.name().toLowerCase(Locale.ROOT);
  }

  /** Checks what a call does, or the error that the line has instead. */
  private static void check(Map<String, Object> line, Executable call) throws IOException {
    try {
      if (line.containsKey("error")) {
        assertEquals(line.get("error"), fault(assertThrows(DueqException.class, call, line.toString())), line.toString());
      } else {
        call.execute();
      }
    } catch (AssertionError error) {
      throw error;
    } catch (Throwable error) {
      throw new AssertionError(line.toString(), error);
    }
  }

  private static byte[] bytes(Object text) {
    return ((String) text).getBytes(StandardCharsets.UTF_8);
  }

  /** The reply as the driver returns it. */
  private static Object raw(Object value) {
    if (value instanceof List<?> list) {
      return list.stream().map(VectorsTest::raw).toList();
    }
    return value instanceof String text ? bytes(text) : value;
  }

  @Test
  void idsBelongToThePartitionsOfTheRustLibrary() throws IOException {
    for (var line : vectors("routing")) {
      var id = HexFormat.of().parseHex((String) line.get("id_hex"));
      for (var one : ((Map<?, ?>) line.get("index_of")).entrySet()) {
        assertEquals(one.getValue(), (long) Routes.indexOf(id, Integer.parseInt((String) one.getKey())));
      }
      assertEquals(line.get("follow_up_hex"), HexFormat.of().formatHex(Routes.idOfFollowUp(id, 1)));
    }
  }

  @Test
  void keysAndBadNames() throws IOException {
    for (var line : vectors("keys")) {
      check(line, () -> {
        var keys = Keys.of((String) line.get("queue"), (String) line.get("tag"));
        assertEquals(List.of(line.get("keys"), line.get("wake"), line.get("notice")),
            List.of(keys.ten(), keys.wake(), keys.notice()));
      });
    }
  }

  @Test
  void mapsAndTheFencesOfCalls() throws IOException {
    for (var line : vectors("maps")) {
      check(line, () -> {
        var map = PartitionMap.parse("orders", (String) line.get("map"));
        assertEquals(List.of(line.get("epoch"), line.get("old"), line.get("new")),
            List.of(map.epoch(), map.old(), map.next()));
        for (var one : ((Map<?, ?>) line.get("calls")).entrySet()) {
          var steps = map.steps(bytes(one.getKey())).stream().map(step -> List.of(step.tag(), step.fence())).toList();
          assertEquals(one.getValue(), steps);
        }
      });
    }
  }

  @Test
  void errorCodesSayWhetherTheCallWasApplied() throws IOException {
    for (var line : vectors("errors")) {
      var found = fault(DueqException.ofReply("here", (String) line.remove("reply")));
      assertEquals(line, found);
    }
  }

  @Test
  void messagesAreEncodedAsByTheRustLibrary() throws IOException {
    for (var line : vectors("messages")) {
      check(line, () -> {
        var message = Message.of("rate it").id("a");
        ((Map<?, ?>) line.get("options")).forEach((name, value) -> set(message, (String) name, value));
        var encoded = message.encode(null);
        var words = encoded.words().stream()
            .map(word -> word instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : word).toList();
        assertEquals(List.of(line.get("arguments"), line.get("repeatable")), List.of(words, encoded.repeatable()));
      });
    }
  }

  private static void set(Message message, String name, Object value) {
    switch (name) {
      case "id" -> message.id((String) value);
      case "delay_us" -> message.delay(micros(value));
      case "due_ms" -> message.due(Instant.ofEpochMilli((Long) value));
      case "spread_us" -> message.spread(micros(value));
      case "max_attempts" -> message.maxAttempts(((Long) value).intValue());
      case "on_conflict" -> message.onConflict(Message.OnConflict.valueOf(upper(value)));
      case "trace_parent" -> message.traceParent((String) value);
      case "expires_after_us" -> message.expiresAfter(micros(value));
      case "expires_at_ms" -> message.expiresAt(Instant.ofEpochMilli((Long) value));
      case "on_expire" -> message.onExpire(Message.OnExpire.valueOf(upper(value)));
      case "cost" -> message.cost(((Long) value).intValue());
      case "window_us" -> message.window(micros(value));
      case "reuse" -> message.reuse((Boolean) value);
      case "max_wait_us" -> message.maxWait(micros(value));
      case "revive" -> message.revive((Boolean) value);
      case "undo_ms" -> message.undoMs((Long) value);
      default -> throw new AssertionError("an unknown option " + name);
    }
  }

  private static String upper(Object value) {
    return ((String) value).toUpperCase(Locale.ROOT);
  }

  private static Duration micros(Object value) {
    return Duration.ofNanos(0).plus((Long) value, java.time.temporal.ChronoUnit.MICROS);
  }

  @Test
  void itemResultsAreDecodedAsByTheRustLibrary() throws IOException {
    for (var line : vectors("results")) {
      var verb = (String) line.remove("verb");
      var text = (String) line.remove("result");
      check(line, () -> {
        var found = Replies.result(verb, text);
        var plain = new HashMap<String, Object>(Map.of("outcome", found.outcome()));
        if (found.ms() != null) {
          plain.put("ms", found.ms());
        }
        if (found.state() != null) {
          plain.put("state", word(found.state()));
        }
        assertEquals(line, plain);
      });
    }
  }

  @Test
  void changesAreConfirmedAsByTheRustLibrary() throws IOException {
    for (var line : vectors("changes")) {
      var found = Durability.isChange((String) line.get("verb"), (String) line.get("result"));
      assertEquals(line.get("is_change"), found, line.toString());
    }
    for (var line : vectors("waits")) {
      var replicas = ((Long) line.get("replicas")).intValue();
      var durability = line.get("local") instanceof Boolean local
          ? Durability.fsynced(local, replicas, Duration.ofSeconds(1)) : Durability.replicated(replicas, Duration.ofSeconds(1));
      assertEquals(line.get("confirmed"), durability.shortfall(line.get("answer")) == null, line.toString());
    }
  }

  @Test
  void schedulesAreDeclaredAsByTheRustLibrary() throws IOException {
    for (var line : vectors("schedules")) {
      var options = new HashMap<>((Map<?, ?>) line.get("options"));
      var schedule = Schedule.every((String) line.get("name"), micros(options.remove("every_us")));
      options.forEach((name, value) -> set(schedule, (String) name, value));
      var words = schedule.words().stream()
          .map(word -> word instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : word).toList();
      assertEquals(line.get("arguments"), words);
    }
  }

  private static void set(Schedule schedule, String name, Object value) {
    switch (name) {
      case "payload" -> schedule.payload((String) value);
      case "anchor_ms" -> schedule.anchor(Instant.ofEpochMilli((Long) value));
      case "missed" -> schedule.missed(Schedule.Missed.valueOf(upper(value)));
      case "max" -> schedule.max(((Long) value).intValue());
      case "within_us" -> schedule.within(micros(value));
      case "overlap" -> schedule.overlap(Schedule.Overlap.valueOf(upper(value)));
      case "jitter_us" -> schedule.jitter(micros(value));
      case "start_ms" -> schedule.start(Instant.ofEpochMilli((Long) value));
      case "end_ms" -> schedule.end(Instant.ofEpochMilli((Long) value));
      case "limit" -> schedule.limit((Long) value);
      case "max_attempts" -> schedule.maxAttempts(((Long) value).intValue());
      case "expires_after_us" -> schedule.expiresAfter(micros(value));
      case "on_expire" -> schedule.onExpire(Message.OnExpire.valueOf(upper(value)));
      default -> throw new AssertionError("an unknown option " + name);
    }
  }

  @Test
  void repeatedPushesAreJudgedAsByTheRustLibrary() throws IOException {
    for (var line : vectors("verdicts")) {
      var found = Replies.verdict((String) line.get("result"), (Boolean) line.get("repeated"),
          (Long) line.get("latest_start_us"));
      assertEquals(line.get("then"), word(found), line.toString());
    }
  }

  @Test
  void wholeRepliesAreDecodedAsByTheRustLibrary() throws IOException {
    for (var line : vectors("replies")) {
      var verb = (String) line.remove("verb");
      var reply = line.remove("reply");
      check(line, () -> {
        var read = Replies.readReply(verb, raw(reply), 0, 0);
        var found = new LinkedHashMap<String, Object>();
        if (verb.equals("claim")) {
          var claimed = Replies.claim(read);
          found.put("header", plain(read.header()));
          found.put("left", claimed.left());
          var granted = claimed.granted().stream().map(VectorsTest::plain).toList();
          granted.forEach(one -> one.remove("is_tick"));
          found.put("granted", granted);
        } else {
          var known = Replies.get(read, bytes("a"));
          found.put("stored", plain(known.stored()));
          found.put("end", plain(known.end()));
          if (known.stored() != null) {
            ((Map<?, ?>) found.get("stored")).remove("id");
          }
        }
        assertEquals(line, found);
      });
    }
  }

  /** What JSON can show of a record: names in snake case, bytes as text, and numbers as Long. */
  private static Map<String, Object> plain(Record value) {
    if (value == null) {
      return null;
    }
    var found = new HashMap<String, Object>();
    for (var part : value.getClass().getRecordComponents()) {
      var name = part.getName().replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
      try {
        var accessor = part.getAccessor();
        accessor.setAccessible(true);
        var one = accessor.invoke(value);
        found.put(name, one instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8)
            : one instanceof Integer number ? (Object) (long) number
            : one instanceof Enum<?> word ? word(word)
            : one instanceof OptionalLong maybe ? (maybe.isPresent() ? (Object) maybe.getAsLong() : null)
            : one instanceof OptionalInt maybe ? (maybe.isPresent() ? (Object) (long) maybe.getAsInt() : null)
            : one);
      } catch (ReflectiveOperationException error) {
        throw new AssertionError(error);
      }
    }
    return found;
  }

  @Test
  void idsAndPayloadsAreAnyBytes() {
    var odd = List.of(bytes("größe"), bytes("🦀"), bytes("a b"), bytes("\ufeffa"), new byte[] {(byte) 0xff, (byte) 0xfe},
        new byte[] {0x61, (byte) 0xf0, (byte) 0x9f, (byte) 0xa6});
    for (var id : odd) {
      assertArrayEquals(id, Message.encoded(Message.shown(id)));
      assertArrayEquals(id, Message.of(new byte[] {0, -1}).id(Message.shown(id)).encode(null).id());
    }
  }
}
