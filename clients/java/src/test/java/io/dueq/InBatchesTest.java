package io.dueq;

import static io.dueq.InBatches.inBatches;
import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.model.StoredMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class InBatchesTest extends WorkerTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private final List<Integer> sizes = Collections.synchronizedList(new ArrayList<>());

  @Test
  void aBatchIsOneCallAndEachMessageIsSettledForItself() throws Exception {
    pushAll(7, "m", 0);
    for (var id : List.of("bury", "snooze", "z")) {
      queue.blocking().push(message(id, 100));
    }
    run(inBatches(10, Duration.ofSeconds(10), batch -> {
      sizes.add(batch.size());
      return batch.stream().filter(one -> !one.id().equals("z")).map(one -> switch (one.id()) {
        case "bury" -> Settlement.bury("no");
        case "snooze" -> Settlement.snooze(LONG);
        default -> Settlement.ack();
      }).toList();
    }), options().concurrency(2).retry(Retry.fixed(LONG)));
    until(() -> meta("acked") == 7 && state("bury") == StoredMessage.State.DEAD && meta("retried") == 1);
    assertEquals(List.of(10), sizes);
    assertEquals(0, queue.blocking().get("snooze").orElseThrow().failures());
    // The last one of a batch has no settlement.
    var left = List.of("m6", "snooze", "z").stream().map(id -> queue.blocking().get(id)).flatMap(java.util.Optional::stream)
        .filter(one -> one.failures() == 1).toList();
    assertEquals(1, left.size());
    assertTrue(left.get(0).error().startsWith("the handler of the batch returned 9 settlements"), left.get(0).error());
  }

  @Test
  void aFailureRetriesAllAndABatchOfOneIsClosedByTime() throws Exception {
    pushAll(3, "m", 0);
    run(inBatches(3, Duration.ofMillis(50), batch -> {
      sizes.add(batch.size());
      if (sizes.equals(List.of(3))) {
        throw new IllegalStateException("no index");
      }
      return null;
    }), options().retry(Retry.fixed(Duration.ofMillis(200))));
    until(() -> meta("acked") == 3);
    assertEquals(3, meta("retried"));
    queue.blocking().push("alone");
    until(() -> meta("acked") == 4);
    assertEquals(1, sizes.get(sizes.size() - 1));
  }

  @Test
  void noMoreBatchesRunThanTheConcurrencyAndAStopClosesTheOpenOne() throws Exception {
    var now = new AtomicInteger();
    var most = new AtomicInteger();
    pushAll(40, "m", 0);
    var worker = run(inBatches(4, Duration.ofSeconds(10), batch -> {
      most.accumulateAndGet(now.incrementAndGet(), Math::max);
      Thread.sleep(20);
      now.decrementAndGet();
      return null;
    }), options().concurrency(2));
    until(() -> meta("acked") == 40);
    queue.blocking().push(message("last", 0));
    until(() -> worker.consumers.get(0).gather.waiting() == 1);
    worker.stop();
    running.get(0).join();
    assertEquals(2, most.get());
    assertEquals(41, meta("acked"));
  }

  @Test
  void aMessageThatCrashedItsWorkerComesAlone() throws Exception {
    pushAll(1, "crashed", 0);
    queue.router.partition("-").call("claim", "", List.of(1, Partition.random(16), 1));
    var batches = Collections.synchronizedList(new ArrayList<List<String>>());
    run(inBatches(2, Duration.ofSeconds(10), batch -> {
      batches.add(batch.stream().map(Delivery::id).sorted().toList());
      return null;
    }), options());
    pushAll(2, "m", 300);
    until(() -> meta("acked") == 3);
    assertTrue(batches.containsAll(List.of(List.of("m0", "m1"), List.of("crashed0"))), batches.toString());
  }

  @Test
  void aBatchIsInterruptedOnceAllItsLeasesAreLost() throws Exception {
    pushAll(2, "m", 0);
    var began = new CountDownLatch(1);
    var interrupted = new CompletableFuture<Boolean>();
    run(inBatches(2, Duration.ofMillis(200), batch -> {
      began.countDown();
      try {
        Thread.sleep(60_000);
      } catch (InterruptedException error) {
        interrupted.complete(batch.stream().allMatch(Delivery::isLost));
      }
      return null;
    }), options().lease(Duration.ofMillis(900)));
    began.await();
    server.command("FLUSHALL");
    assertTrue(interrupted.get(60, TimeUnit.SECONDS));
  }

  @Test
  void aBatchThatOutlivesItsTimeLimitIsRetried() throws Exception {
    pushAll(2, "m", 0);
    run(inBatches(2, Duration.ofSeconds(5), batch -> {
      sizes.add(batch.size());
      if (sizes.size() == 1) {
        Thread.sleep(60_000);
      }
      return null;
    }), options().timeLimit(Duration.ofMillis(200)).retry(Retry.fixed(Duration.ofMillis(10))));
    until(() -> meta("acked") == 2);
    assertEquals(2, meta("retried"));
  }
}
