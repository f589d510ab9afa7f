package io.dueq;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.model.StoredMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** A server and a queue for each test, and workers that end with it. */
abstract class WorkerTest {
  RedisServer server;
  Client client;
  Queue queue;
  final List<Worker> workers = new ArrayList<>();
  final List<CompletableFuture<Void>> running = new ArrayList<>();

  @BeforeEach
  void begin() throws Exception {
    server = RedisServer.of();
    client = Client.connect(server.url());
    queue = client.queue("q");
  }

  @AfterEach
  void end() throws Exception {
    workers.forEach(Worker::stop);
    for (var one : running) {
      one.get(60, TimeUnit.SECONDS);
    }
    client.close();
    server.close();
  }

  Worker run(Worker worker, Duration grace) {
    workers.add(worker);
    running.add(CompletableFuture.runAsync(() -> worker.run(grace), Threads.POOL));
    return worker;
  }

  Worker run(Worker.Handler handler, Worker.Options options) {
    return run(client.worker().queue(queue, handler, options), Duration.ofSeconds(10));
  }

  Worker run(InBatches handler, Worker.Options options) {
    return run(client.worker().queue(queue, handler, options), Duration.ofSeconds(10));
  }

  static Worker.Options options() {
    return new Worker.Options();
  }

  static Message message(String id, long delayMs) {
    return Message.of(id).id(id).delay(Duration.ofMillis(delayMs));
  }

  void pushAll(int count, String name, long delayMs) {
    var all = IntStream.range(0, count).mapToObj(n -> message(name + n, delayMs)).toList();
    assertTrue(queue.pushMany(all).join().stream().allMatch(one -> one.receipt().orElseThrow().created()));
  }

  StoredMessage.State state(String id) {
    return queue.blocking().get(id).map(StoredMessage::state).orElse(null);
  }

  long meta(String field) {
    return server.meta("q", field);
  }
}
