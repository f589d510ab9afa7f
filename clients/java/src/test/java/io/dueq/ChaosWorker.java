package io.dueq;

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** The process of a worker that a test kills. One write for each run, which a kill does not tear apart. */
final class ChaosWorker {
  private ChaosWorker() {}

  public static void main(String[] words) throws Exception {
    var log = new FileOutputStream(words[1], true);
    var client = Client.connect(words[0]);
    client.worker().queue(client.queue("q"), delivery -> {
      var isEarly = System.currentTimeMillis() < delivery.dueMs();
      log.write((delivery.id() + " " + delivery.attempt() + " " + isEarly + "\n").getBytes(StandardCharsets.UTF_8));
      Thread.sleep(10);
      return null;
    }, new Worker.Options().concurrency(8).lease(Duration.ofSeconds(2))).run();
  }
}
