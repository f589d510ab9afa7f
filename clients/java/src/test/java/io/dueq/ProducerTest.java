package io.dueq;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.dueq.model.CancelOutcome;
import io.dueq.model.MessageEnd;
import io.dueq.model.Receipt;
import io.dueq.model.Rescheduled;
import io.dueq.model.RunNowOutcome;
import io.dueq.model.StoredMessage;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ProducerTest {
  private static void assertRefused(String text, Runnable call) {
    var error = assertThrows(DueqException.class, call::run);
    assertEquals(Kind.INVALID_INPUT, error.kind());
    assertEquals(text, error.getMessage());
  }

  @Test
  void anErrorOfBadInputShowsTheValueAndTheRule() {
    assertRefused("message id \"é\\u0000\" of 3 bytes: an id has 1 to 200 bytes, none of them a control byte",
        () -> Message.of("").id("é\0").encode(null));
    assertRefused("a payload is a String or byte[], not null", () -> Message.of((String) null));
    assertRefused("an id is a String or byte[], not null", () -> Message.of("").id((byte[]) null));
    assertRefused("a message has a delay or a due time, not both",
        () -> Message.of("").delay(Duration.ZERO).due(Instant.EPOCH).encode(null));
    assertRefused("cost is 0, it must be a whole number from 1 to 1000000", () -> Message.of("").cost(0).encode(null));
  }

  @Test
  void aServerThatIsNotThereIsNamedOnce() {
    var server = new Server(RedisClient.create(), "127.0.0.1:1", () -> RedisURI.create("redis://127.0.0.1:1"));
    var error = assertThrows(DueqException.class, server::check);
    assertTrue(error.getMessage().matches("cannot reach redis at 127.0.0.1:1: Connection refused.{0,20}"), error.getMessage());
  }

  @Test
  void resultsOfEachCallInEachState() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("orders").blocking();
      var due = Instant.ofEpochMilli(System.currentTimeMillis() + 3_600_000);
      var receipt = queue.push(Message.of("rate it").id("order:42").due(due).maxAttempts(5).cost(2));
      assertTrue(receipt.created());
      assertEquals("order:42", receipt.id());
      var again = queue.push(Message.of("rate it").id("order:42"));
      assertEquals(Receipt.Outcome.EXISTS, again.outcome());
      assertEquals(Optional.of(StoredMessage.State.SCHEDULED), again.state());
      var stored = queue.get("order:42").orElseThrow();
      assertEquals("rate it", new String(stored.payload()));
      assertEquals(List.of(5, 2, due.toEpochMilli()),
          List.of(stored.maxAttempts().getAsInt(), stored.cost(), stored.timeMs()));
      var later = due.plusSeconds(1);
      var moved = queue.reschedule("order:42", later, due);
      assertEquals(Rescheduled.Outcome.MOVED, moved.outcome());
      assertEquals(later.toEpochMilli(), moved.dueMs().getAsLong());
      assertEquals(Rescheduled.Outcome.CONFLICT, queue.reschedule("order:42", later.plusSeconds(1), due).outcome());
      assertEquals(Rescheduled.Outcome.MOVED, queue.reschedule("order:42", Duration.ofHours(1)).outcome());
      var replaced = queue.push(Message.of("other").id("order:42").delay(Duration.ofSeconds(9))
          .onConflict(Message.OnConflict.REPLACE));
      assertEquals(Receipt.Outcome.MOVED, replaced.outcome());
      assertEquals(RunNowOutcome.MOVED, queue.runNow("order:42"));
      assertEquals(RunNowOutcome.ALREADY, queue.runNow("order:42"));
      assertEquals(CancelOutcome.CANCELLED, queue.cancel("order:42"));
      assertEquals(CancelOutcome.ABSENT, queue.cancelDead("none"));
      assertEquals(MessageEnd.Kind.CANCELLED, queue.endOf("order:42").orElseThrow().kind());
      assertTrue(queue.get("order:42").isEmpty());
    }
  }

  @Test
  void idsAndPayloadsAreAnyBytes() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("die größte, Nr. 1").blocking();
      var payload = new byte[256];
      for (var at = 0; at < 256; at += 1) {
        payload[at] = (byte) at;
      }
      for (var id : List.of("größe", "🦀", "a b", Message.shown(new byte[] {-1, -2}), "x".repeat(200))) {
        assertEquals(id, queue.push(Message.of(payload).id(id)).id());
        assertArrayEquals(payload, queue.get(id).orElseThrow().payload());
      }
    }
  }

  @Test
  void callsInFlightShareFewCallsOfTheServer() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("q");
      queue.push("first").join();
      var before = server.calls("evalsha");
      var all = IntStream.range(0, 5_000).mapToObj(n -> Message.of("x").id("m" + n)).toList();
      var pushed = queue.pushMany(all).join();
      assertTrue(pushed.stream().allMatch(one -> one.receipt().orElseThrow().created()));
      assertEquals("m4999", pushed.get(4_999).receipt().orElseThrow().id());
      assertEquals(before + 20, server.calls("evalsha")); // of 256 at most
      before = server.calls("evalsha");
      for (var call = 0; call < 10; call += 1) { // those of one caller are not divided
        assertEquals(100, queue.pushMany(Collections.nCopies(100, Message.of("x"))).join().size());
      }
      assertEquals(before + 10, server.calls("evalsha"));
      var some = queue.pushMany(List.of(Message.of("x").id("ok"), Message.of("x").id("a\n"))).join();
      assertTrue(some.get(0).receipt().isPresent());
      assertEquals(Kind.INVALID_INPUT, some.get(1).error().orElseThrow().kind());
    }
  }

  /** What depends on a result may wait for another call. */
  @Test
  void aDependentOfAResultMayBlockOnTheNextCall() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("q");
      assertTrue(queue.push("a").thenApply(first -> queue.blocking().push("b")).get(60, TimeUnit.SECONDS).created());
    }
  }

  @Test
  void aPushWhoseReplyWasLostIsRepeatedWithoutASecondMessage() throws Exception {
    try (var server = RedisServer.of(); var proxy = new Proxy(server); var client = Client.connect(proxy.url());
        var other = Client.connect(server.url())) {
      var queue = client.queue("q").blocking();
      queue.push("warm");
      other.queue("q").blocking().push("warm"); // connected before: a push is repeated for 10 s only
      proxy.lose("once", false);
      var receipt = queue.push(Message.of("x").id("once").delay(Duration.ofHours(1)));
      assertEquals(Receipt.Outcome.EXISTS, receipt.outcome());
      proxy.lose("twice", true);
      var pushing = client.queue("q").push(Message.of("x").id("twice").delay(Duration.ofHours(1)));
      proxy.awaitLost();
      assertEquals(CancelOutcome.CANCELLED, other.queue("q").blocking().cancel("twice"));
      proxy.resume();
      assertEquals(Receipt.Outcome.FINISHED, pushing.get(60, TimeUnit.SECONDS).outcome());
      assertTrue(queue.get("twice").isEmpty());
    }
  }

  @Test
  void aCallThatMustNotBeRepeatedSaysThatItIsUnknown() throws Exception {
    try (var server = RedisServer.of(); var proxy = new Proxy(server); var client = Client.connect(proxy.url())) {
      var queue = client.queue("q").blocking();
      queue.push(Message.of("x").id("a").delay(Duration.ofHours(1)));
      queue.runNow("a");
      proxy.lose("EVALSHA", false);
      var error = assertThrows(DueqException.class, () -> queue.runNow("a"));
      assertEquals(List.of(Kind.UNAVAILABLE, Applied.UNKNOWN), List.of(error.kind(), error.applied()));
      assertTrue(error.retryable());
    }
  }

  @Test
  void callsGoOnAfterAKillOfTheServer() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("q");
      queue.push(Message.of("x").id("before").delay(Duration.ofHours(1))).join();
      server.kill();
      var pushing = queue.push(Message.of("x").id("during").delay(Duration.ofHours(1)));
      server.start();
      assertTrue(pushing.join().created());
      assertEquals(Receipt.Outcome.EXISTS, queue.push(Message.of("x").id("before")).join().outcome());
    }
  }

  @Test
  void aServerThatIsAwayIsUnavailable() throws Exception {
    try (var client = Client.connect("redis://127.0.0.1:" + RedisServer.freePort() + "/")) {
      var error = assertThrows(DueqException.class, () -> client.queue("q").blocking().push("x"));
      assertEquals(List.of(Kind.UNAVAILABLE, Applied.NO, true), List.of(error.kind(), error.applied(), error.retryable()));
    }
  }

  @Test
  void closeWaitsForTheCallsThatAreUnderWay() throws Exception {
    try (var server = RedisServer.of()) {
      var client = Client.connect(server.url());
      client.queue("q").push("first").join();
      var all = IntStream.range(0, 1_000).mapToObj(n -> client.queue("q").push("x")).toList();
      client.close();
      assertTrue(all.stream().map(CompletableFuture::join).allMatch(Receipt::created));
    }
  }
}
