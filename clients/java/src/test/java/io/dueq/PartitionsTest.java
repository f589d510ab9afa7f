package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.dueq.model.CancelOutcome;
import io.dueq.model.Receipt;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Queues of several partitions, on one server while their number changes, and on a cluster. */
@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PartitionsTest {
  private static final String PROGRAM = System.getenv().getOrDefault("DUEQ_PROGRAM", "");

  /** Changes the partitions as an operator does, while the queue is used. */
  private static Process change(String url, int count) throws Exception {
    assumeTrue(Files.isExecutable(Path.of(PROGRAM)), "DUEQ_PROGRAM names no program");
    return new ProcessBuilder(PROGRAM, "--redis", url, "partitions", "q", String.valueOf(count))
        .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }

  private static List<Message> messages(String name, int count, long delayMs) {
    return IntStream.range(0, count)
        .mapToObj(n -> Message.of(name + n).id(name + n).delay(Duration.ofMillis(delayMs))).toList();
  }

  private static void pushAll(Queue queue, List<Message> messages) {
    for (var one : queue.pushMany(messages).join()) {
      assertTrue(one.receipt().isPresent() && one.receipt().get().created(), one.toString());
    }
  }

  @Test
  void callsFindTheirMessageWhileThePartitionsChange() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("q");
      pushAll(queue, messages("m", 300, 3_600_000));
      for (var count : List.of(3, 2)) {
        var operator = change(server.url(), count);
        var rounds = 0;
        for (; operator.isAlive(); rounds += 1) {
          for (var n = 0; n < 300; n += 30) {
            var again = queue.push(Message.of("other").id("m" + n).delay(Duration.ofMinutes(1)));
            assertEquals("m" + n, new String(queue.blocking().get("m" + n).orElseThrow().payload()));
            assertEquals(Receipt.Outcome.EXISTS, again.join().outcome());
          }
        }
        assertEquals(0, operator.waitFor());
        assertTrue(rounds > 0);
      }
      assertEquals(2, queue.router.map().next().size());
      var cancelled = IntStream.range(0, 300).mapToObj(n -> queue.cancel("m" + n)).toList();
      assertTrue(cancelled.stream().map(CompletableFuture::join).allMatch(CancelOutcome.CANCELLED::equals));
      pushAll(queue, messages("m", 300, 3_600_000));
    }
  }

  @Test
  void aWorkerFollowsTheMapAndHandlesEachMessageOnce() throws Exception {
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      var queue = client.queue("q");
      var runs = new ConcurrentHashMap<String, Integer>();
      var worker = client.worker().queue(queue, delivery -> {
        runs.merge(delivery.id(), 1, Integer::sum);
        return delivery.id().contains("/") ? null : Settlement.ackAnd(List.of(Message.of("")));
      }, new Worker.Options().concurrency(8));
      var running = CompletableFuture.runAsync(worker::run, Threads.POOL);
      for (var n = 0; n < 300; n += 1) {
        queue.push(Message.of("").id("a" + n).delay(Duration.ofMillis(10L * n)));
      }
      // These are moved in batches; what is due soon stays where it is.
      pushAll(queue, messages("c", 100, 3_600_000));
      var operator = change(server.url(), 3);
      var sent = 0;
      for (; operator.isAlive(); sent += 1) {
        queue.push(Message.of("").id("b" + sent).delay(Duration.ofMillis(100))).join();
        Thread.sleep(20);
      }
      assertEquals(0, operator.waitFor());
      var total = 2 * (300 + sent);
      until(() -> runs.size() == total);
      Thread.sleep(500);
      assertEquals(total, runs.size());
      assertTrue(runs.values().stream().allMatch(one -> one == 1), runs.toString());
      worker.stop();
      running.get(60, TimeUnit.SECONDS);
    }
  }

  private static List<RedisServer> cluster() throws Exception {
    var servers = new ArrayList<RedisServer>();
    for (var number = 0; number < 3; number += 1) {
      var server = RedisServer.of("--cluster-enabled", "yes");
      servers.add(server);
      var first = number * 5_461;
      server.command("CLUSTER", "ADDSLOTSRANGE", first, first + 5_460 + (number == 2 ? 1 : 0));
      server.command("CLUSTER", "MEET", "127.0.0.1", servers.get(0).port);
    }
    for (var server : servers) {
      until(() -> Replies.text(server.command("CLUSTER", "INFO")).contains("cluster_state:ok")
          && Replies.list(server.command("CLUSTER", "SLOTS")).size() == 3);
    }
    return servers;
  }

  /** By a plain URL: the server says that it belongs to a cluster. */
  @Test
  void aQueueOfPartitionsOnAClusterIsFoundByEitherUrl() throws Exception {
    var servers = cluster();
    var first = servers.get(0);
    try (var client = Client.connect(first.url());
        var other = Client.connect("redis+cluster://127.0.0.1:" + servers.get(2).port + "/")) {
      var queue = client.queue("q");
      var runs = new ConcurrentHashMap<String, Integer>();
      var worker = client.worker().queue(queue, delivery -> {
        runs.merge(delivery.id(), 1, Integer::sum);
        return null;
      });
      var running = CompletableFuture.runAsync(worker::run, Threads.POOL);
      pushAll(queue, messages("a", 100, 300));
      var operator = change("redis+cluster://127.0.0.1:" + first.port + "/", 6);
      assertEquals(0, operator.waitFor());
      pushAll(other.queue("q"), messages("b", 300, 300));
      pushAll(queue, messages("c", 300, 300));
      until(() -> runs.size() == 700);
      assertTrue(runs.values().stream().allMatch(one -> one == 1), runs.toString());
      assertEquals(6, queue.router.map().next().size());
      worker.stop();
      running.get(60, TimeUnit.SECONDS);
    } finally {
      for (var server : servers) {
        server.close();
      }
    }
  }

  @Test
  void aSlotThatMovesIsFollowed() throws Exception {
    var servers = cluster();
    try (var client = Client.connect(servers.get(0).url())) {
      var queue = client.queue("q");
      var runs = new ConcurrentHashMap<String, Integer>();
      var worker = client.worker().queue(queue, delivery -> {
        runs.merge(delivery.id(), 1, Integer::sum);
        return null;
      });
      var running = CompletableFuture.runAsync(worker::run, Threads.POOL);
      pushAll(queue, messages("a", 50, 200));
      until(() -> runs.size() == 50);
      var slot = Routes.slotOf("dueq:{q}:meta");
      var from = servers.get(Math.min(slot / 5_461, 2));
      var to = servers.get(from == servers.get(0) ? 1 : 0);
      var target = Replies.text(to.command("CLUSTER", "MYID"));
      to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", Replies.text(from.command("CLUSTER", "MYID")));
      from.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target);
      var keys = Replies.list(from.command("CLUSTER", "GETKEYSINSLOT", slot, 100));
      for (var key : keys) {
        from.command("MIGRATE", "127.0.0.1", to.port, key, 0, 5_000);
      }
      for (var server : List.of(to, from, servers.get(2))) {
        server.command("CLUSTER", "SETSLOT", slot, "NODE", target);
      }
      pushAll(queue, messages("b", 50, 200));
      until(() -> runs.size() == 100);
      assertTrue(runs.values().stream().allMatch(one -> one == 1), runs.toString());
      worker.stop();
      running.get(60, TimeUnit.SECONDS);
    } finally {
      for (var server : servers) {
        server.close();
      }
    }
  }
}
