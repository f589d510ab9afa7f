package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.dueq.model.CancelOutcome;
import io.dueq.model.Receipt;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DurabilityTest {
  private static final Duration LONG = Duration.ofSeconds(20);

  private static Message message(String id) {
    return Message.of("").id(id).delay(Duration.ofHours(1));
  }

  private static void assertUnconfirmed(String id, Executable call) {
    var error = assertThrows(DueqException.class, call);
    assertEquals(List.of(Kind.UNCONFIRMED, Applied.YES, id, true),
        List.of(error.kind(), error.applied(), error.id(), error.retryable()), error.toString());
    assertTrue(error.getMessage().contains("only 0 of 1 replicas"), error.getMessage());
  }

  @Test
  void changesWaitForReplicasAndDisks() throws Exception {
    try (var master = RedisServer.of(); var replica = RedisServer.of("--replicaof", "127.0.0.1 " + master.port);
        var client = Client.connect(master.url())) {
      until(() -> Replies.text(master.command("INFO", "replication")).contains("state=online"));
      var plain = client.queue("q");
      var queue = plain.durability(Durability.replicated(1, LONG)).blocking();
      assertTrue(queue.push(message("a")).created());
      assertEquals(1L, replica.command("EXISTS", "dueq:{q}:messages"));
      var knows = Replies.list(master.command("COMMAND", "INFO", "WAITAOF")).get(0) != null;
      var synced = plain.durability(Durability.fsynced(true, 1, LONG));
      assertEquals(knows, synced.pushMany(List.of(message("b"))).join().get(0).receipt().isPresent());

      replica.signal("STOP");
      var brief = plain.durability(Durability.replicated(1, Duration.ofMillis(50))).blocking();
      assertUnconfirmed("c", () -> brief.push(message("c")));
      assertUnconfirmed("a", () -> brief.push(message("a"))); // it writes nothing, and waits all the same
      assertUnconfirmed("c", () -> brief.cancel("c"));
      assertEquals(CancelOutcome.ABSENT, brief.cancel("none"));
      replica.signal("CONT");
      assertEquals(CancelOutcome.CANCELLED, queue.cancel("c")); // repeated
      assertEquals(Receipt.Outcome.EXISTS, queue.push(message("a")).outcome());
    }
  }

  @Test
  void aDurabilityThatCannotBeIsRefusedBeforeTheChange() throws Exception {
    try (var server = RedisServer.of("--appendonly", "no"); var client = Client.connect(server.url())) {
      var queue = client.queue("q").durability(Durability.fsynced(true, 0, LONG)).blocking();
      var error = assertThrows(DueqException.class, () -> queue.push(message("a")));
      assertEquals(List.of(Kind.UNSUPPORTED, Applied.NO), List.of(error.kind(), error.applied()));
      assertTrue(queue.get("a").isEmpty());
      for (var bad : List.<Executable>of(() -> Durability.fsynced(false, 0, LONG), () -> Durability.replicated(0, LONG),
          () -> Durability.replicated(-1, LONG), () -> Durability.replicated(1, Duration.ZERO),
          () -> Durability.replicated(1, Duration.ofHours(1)))) {
        assertEquals(Kind.INVALID_INPUT, assertThrows(DueqException.class, bad).kind());
      }
    }
  }
}
