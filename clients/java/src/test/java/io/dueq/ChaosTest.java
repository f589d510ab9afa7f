package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Processes of workers that are killed while the server is killed and its connections are cut. */
@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ChaosTest {
  /** The faults, one a second; the kills of workers go round. */
  private static final List<String> FAULTS =
      List.of("worker", "cut", "worker", "server", "worker", "worker", "cut", "server", "worker", "worker");

  private static Process worker(RedisServer server, Path file) throws IOException {
    return new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx128m",
        "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), "io.dueq.ChaosWorker", server.url(),
        file.toString()).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
  }

  @Test
  void killsLoseNothingAndDoubleNothingWithoutALapsedLease() throws Exception {
    var file = Files.createTempFile("dueq-java-", ".runs");
    var workers = new ArrayList<Process>();
    try (var server = RedisServer.of(); var client = Client.connect(server.url())) {
      for (var n = 0; n < 3; n += 1) {
        workers.add(worker(server, file));
      }
      var queue = client.queue("q");
      var pushed = 0;
      var faults = 0;
      var killed = 0;
      for (var next = System.nanoTime() + TimeUnit.SECONDS.toNanos(3); faults < FAULTS.size(); Thread.sleep(40)) {
        var first = pushed;
        var all = IntStream.range(first, first + 10)
            .mapToObj(n -> Message.of("").id("m" + n).delay(Duration.ofMillis(200)).window(Duration.ofHours(1))).toList();
        // A busy machine may take longer than a push is repeated; their ids are remembered meanwhile.
        until(() -> queue.pushMany(all).join().stream().allMatch(one -> one.receipt().isPresent()));
        pushed += 10;
        if (System.nanoTime() < next) {
          continue;
        }
        next = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
        switch (FAULTS.get(faults)) {
          case "worker" -> {
            workers.get(killed % 3).destroyForcibly().waitFor();
            workers.set(killed % 3, worker(server, file));
            killed += 1;
          }
          case "server" -> {
            server.kill();
            server.start();
          }
          default -> server.command("CLIENT", "KILL", "TYPE", "normal");
        }
        faults += 1;
      }
      var total = pushed;
      // What a killed worker had comes back when its lease has run out.
      until(() -> server.meta("q", "acked") == total);
      var runs = Files.readAllLines(file);
      var ids = new HashSet<String>();
      runs.forEach(line -> ids.add(Replies.before(line, " ")));
      System.out.println("chaos: " + total + " messages, " + runs.size() + " runs, " + faults + " faults");
      assertEquals(total, ids.size());
      assertTrue(runs.stream().noneMatch(line -> line.endsWith("true")), "early");
      // A second run of an id has another attempt: a crash was charged, because a lease had run out.
      assertEquals(runs.size(), new HashSet<>(runs).size());
    } finally {
      workers.forEach(Process::destroyForcibly);
      Files.delete(file);
    }
  }
}
