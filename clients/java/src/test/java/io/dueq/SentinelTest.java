package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SentinelTest {
  @Test
  void callsAndWorkersFollowAFailover() throws Exception {
    var file = Files.createTempFile("dueq-java-", ".conf");
    try (var master = RedisServer.of(); var replica = RedisServer.of("--replicaof", "127.0.0.1 " + master.port)) {
      until(() -> Replies.text(master.command("INFO", "replication")).contains("state=online"));
      Files.writeString(file, "sentinel monitor orders 127.0.0.1 " + master.port + " 1\n"
          + "sentinel down-after-milliseconds orders 500\nsentinel failover-timeout orders 3000\n");
      try (var sentinel = RedisServer.sentinel(file);
          var client = Client.connect("redis+sentinel://127.0.0.1:" + sentinel.port + "/orders")) {
        until(() -> Replies.list(sentinel.command("SENTINEL", "REPLICAS", "orders")).size() == 1);
        var queue = client.queue("q");
        var runs = ConcurrentHashMap.newKeySet();
        var worker = client.worker().queue(queue, delivery -> {
          runs.add(delivery.id());
          return null;
        });
        var running = CompletableFuture.runAsync(worker::run, Threads.POOL);
        queue.blocking().push(Message.of("").id("before"));
        until(() -> runs.contains("before"));
        // Pushed and replicated before the kill: no failover loses them.
        var all = new ArrayList<Message>();
        for (var n = 0; n < 100; n += 1) {
          all.add(Message.of("").id("m" + n).delay(Duration.ofMillis(500 + 20 * n)));
        }
        assertTrue(queue.pushMany(all).join().stream().allMatch(one -> one.receipt().isPresent()));
        master.command("WAIT", 1, 2_000);
        master.kill();
        // On a busy machine the Sentinel may take longer than the 10 s for which a call is repeated.
        until(() -> {
          try {
            return queue.blocking().push(Message.of("").id("after").delay(Duration.ofMillis(100))) != null;
          } catch (DueqException error) {
            assertTrue(error.retryable(), error.toString());
            return false;
          }
        });
        until(() -> runs.size() == 102);
        worker.stop();
        running.get(60, TimeUnit.SECONDS);
      }
    } finally {
      Files.delete(file);
    }
  }
}
