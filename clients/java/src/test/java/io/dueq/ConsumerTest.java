package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.model.StoredMessage;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ConsumerTest extends WorkerTest {
  /** One that looks at each beat only would need 9 s for ten claims. A busy machine has two quiet seconds sometimes. */
  @Test
  void aWorkerWakesForEachDueTimeAndNoneIsEarly() throws Exception {
    var claims = Collections.synchronizedMap(new LinkedHashMap<ByteBuffer, Long>());
    var early = Collections.synchronizedList(new ArrayList<String>());
    run(delivery -> {
      if (System.currentTimeMillis() < delivery.dueMs()) {
        early.add(delivery.id());
      }
      claims.putIfAbsent(ByteBuffer.wrap(delivery.token), System.nanoTime());
      return null;
    }, options().concurrency(200));
    until(() -> {
      queue.blocking().push(Message.of("x").delay(Duration.ofMillis(300)));
      Thread.sleep(40);
      var times = List.copyOf(claims.values());
      return IntStream.range(9, times.size())
          .anyMatch(at -> times.get(at) - times.get(at - 9) < TimeUnit.SECONDS.toNanos(2));
    });
    assertEquals(List.of(), early);
  }

  @Test
  void aNewQueueHasALeaderBeforeTheNextBeat() throws Exception {
    var tries = new AtomicInteger();
    until(() -> { // on a busy machine the first try may take longer than a beat
      var fresh = client.queue("new" + tries.incrementAndGet());
      var handled = new CompletableFuture<Long>();
      var before = server.calls("evalsha");
      var worker = run(client.worker().queue(fresh, delivery -> {
        handled.complete(System.nanoTime());
        return null;
      }), Duration.ofSeconds(10));
      until(() -> server.calls("evalsha") >= before + 2); // it beats at its start, as it subscribes, then after 900 ms
      var began = System.nanoTime();
      fresh.push(message("m", 50));
      var took = handled.get() - began;
      worker.stop();
      return took < TimeUnit.MILLISECONDS.toNanos(700);
    });
  }

  @Test
  void eachSettlementDoesWhatItSays() throws Exception {
    var runs = new ConcurrentHashMap<String, Integer>();
    run(delivery -> {
      var run = runs.merge(delivery.id(), 1, Integer::sum);
      if (run > 1) {
        return Settlement.ack();
      }
      return switch (delivery.id()) {
        case "again" -> Settlement.again(Duration.ofMillis(50));
        case "retry" -> Settlement.retry("why not", Duration.ofHours(1));
        case "release" -> Settlement.release();
        case "bury" -> Settlement.bury("no good");
        case "snooze" -> Settlement.snooze(Duration.ofHours(1));
        case "follow" -> Settlement.ackAnd(List.of(Message.of("x").delay(Duration.ofHours(1)), message("named", 3_600_000)));
        case "refused" -> Settlement.ackAnd(List.of(Message.of("x").id("{refused}a"),
            Message.of("y".repeat(2_000_000)).id("b")));
        case "throws" -> throw new java.io.IOException("größe ".repeat(500));
        case "error" -> throw new StackOverflowError("deep");
        default -> null;
      };
    }, options());
    for (var id : List.of("plain", "again", "retry", "release", "bury", "snooze", "follow", "refused", "throws", "error")) {
      queue.blocking().push(message(id, 0));
    }
    until(() -> state("plain") == null && state("again") == null && state("release") == null && state("follow") == null);
    until(() -> state("retry") == StoredMessage.State.SCHEDULED && state("bury") == StoredMessage.State.DEAD);
    assertEquals("why not", queue.blocking().get("retry").orElseThrow().error());
    assertEquals(2, runs.get("again"));
    assertEquals(2, runs.get("release"));
    assertEquals("no good", queue.blocking().get("bury").orElseThrow().error());
    until(() -> state("snooze") == StoredMessage.State.SCHEDULED);
    assertEquals(0, queue.blocking().get("snooze").orElseThrow().failures());
    assertEquals(StoredMessage.State.SCHEDULED, state("{follow}/1"));
    assertEquals(StoredMessage.State.SCHEDULED, state("named"));
    until(() -> state("throws") == null && state("error") == null && state("refused") == null);
    assertEquals(2, runs.get("throws"));
  }

  @Test
  void failuresAreRetriedUntilTheLimit() throws Exception {
    var attempts = Collections.synchronizedList(new ArrayList<String>());
    run(delivery -> {
      attempts.add(delivery.attempt() + " " + delivery.isLastAttempt());
      throw new IllegalArgumentException("no " + delivery.attempt());
    }, options().retry(Retry.fixed(Duration.ofMillis(20))));
    queue.blocking().push(message("a", 0).maxAttempts(3));
    until(() -> state("a") == StoredMessage.State.DEAD);
    assertEquals(List.of("1 false", "2 false", "3 true"), attempts);
    assertEquals("java.lang.IllegalArgumentException: no 3", queue.blocking().get("a").orElseThrow().error());
  }

  @Test
  void aThrottledQueueStartsNothingUntilItOpens() throws Exception {
    var times = Collections.synchronizedList(new ArrayList<Long>());
    run(delivery -> {
      times.add(System.nanoTime());
      return times.size() == 1 ? Settlement.throttle(Duration.ofMillis(500)) : null;
    }, options().concurrency(1));
    pushAll(3, "m", 0);
    until(() -> times.size() == 4);
    assertTrue(times.get(1) - times.get(0) > TimeUnit.MILLISECONDS.toNanos(480));
  }

  @Test
  void aLongHandlerKeepsItsLease() throws Exception {
    var runs = new AtomicInteger();
    run(delivery -> {
      runs.incrementAndGet();
      Thread.sleep(4_500);
      return null;
    }, options().lease(Duration.ofSeconds(3)));
    queue.blocking().push(message("a", 0));
    until(() -> meta("acked") == 1);
    assertEquals(1, runs.get());
  }

  @Test
  void theMessageOfADeadWorkerComesBackAsACrash() throws Exception {
    pushAll(1, "m", 0);
    queue.router.partition("-").call("claim", "", List.of(1, Partition.random(16), 300));
    var delivered = new CompletableFuture<Delivery>();
    run(delivery -> {
      delivered.complete(delivery);
      return null;
    }, options());
    assertEquals(1, delivered.get(60, TimeUnit.SECONDS).crashes());
    until(() -> meta("acked") == 1);
  }

  @Test
  void aSettlementThatIsDeniedForAMomentIsRepeated() throws Exception {
    server.command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all");
    pushAll(1, "m", 0);
    try (var user = Client.connect(server.url().replace("//", "//worker:secret@"))) {
      var worker = run(user.worker().queue(user.queue("q"), delivery -> {
        server.command("ACL", "SETUSER", "worker", "-evalsha", "-eval");
        return null;
      }, options().lease(Duration.ofSeconds(20))), Duration.ofSeconds(10));
      var denied = Pattern.compile("NOPERM:count=(\\d+)");
      until(() -> denied.matcher(Replies.text(server.command("INFO", "errorstats"))).results()
          .anyMatch(found -> Long.parseLong(found.group(1)) >= 10));
      server.command("ACL", "SETUSER", "worker", "+evalsha", "+eval");
      until(() -> meta("acked") == 1);
      worker.stop();
      running.get(0).get(60, TimeUnit.SECONDS);
    }
    assertEquals(1, meta("claimed"));
  }

  @Test
  void aHandlerWhoseLeaseIsEndedIsInterruptedAndSettlesNothing() throws Exception {
    var interrupted = new CompletableFuture<Boolean>();
    var began = new CountDownLatch(1);
    run(delivery -> {
      began.countDown();
      try {
        Thread.sleep(20_000);
      } catch (InterruptedException error) {
        interrupted.complete(delivery.isLost());
      }
      return null;
    }, options().lease(Duration.ofMillis(900)).concurrency(1));
    queue.blocking().push(message("a", 0));
    began.await();
    server.command("FLUSHALL");
    assertTrue(interrupted.get(60, TimeUnit.SECONDS));
    // The thread of the handler has no interruption left: the next message is handled as usual.
    var second = new CountDownLatch(1);
    workers.get(0).stop();
    run(delivery -> {
      second.countDown();
      return null;
    }, options());
    queue.blocking().push(message("b", 0));
    second.await();
    until(() -> meta("acked") == 1);
  }

  @Test
  void aHandlerThatOutlivesItsTimeLimitIsRetried() throws Exception {
    var runs = new AtomicInteger();
    run(delivery -> {
      if (runs.incrementAndGet() == 1) {
        Thread.sleep(20_000);
      }
      return null;
    }, options().timeLimit(Duration.ofMillis(200)).retry(Retry.fixed(Duration.ofMillis(10))));
    queue.blocking().push(message("a", 0));
    until(() -> meta("acked") == 1);
    assertEquals(2, runs.get());
  }

  @Test
  void lostRepliesOfClaimsAndAcksDoubleNothing() throws Exception {
    try (var proxy = new Proxy(server); var cut = Client.connect(proxy.url())) {
      var runs = new ConcurrentHashMap<String, Integer>();
      var worker = cut.worker().queue(cut.queue("q"), delivery -> {
        runs.merge(delivery.id(), 1, Integer::sum);
        return null;
      });
      run(worker, Duration.ofSeconds(10));
      pushAll(1, "warm", 0);
      until(() -> meta("acked") == 1);
      proxy.lose(Scripts.of("claim").sha(), false);
      pushAll(5, "claim", 50);
      until(() -> meta("acked") == 6);
      proxy.lose(Scripts.of("ack").sha(), false);
      pushAll(5, "ack", 50);
      until(() -> meta("acked") == 11);
      assertEquals(11, runs.size());
      assertTrue(runs.values().stream().allMatch(one -> one == 1), runs.toString());
      worker.stop();
      running.get(0).get(60, TimeUnit.SECONDS);
    }
  }

  @Test
  void stoppingEndsHandlersAndReleasesWhatDoesNotEnd() throws Exception {
    var began = new CountDownLatch(3);
    var hang = new CountDownLatch(1);
    var worker = client.worker().queue(queue, delivery -> {
      began.countDown();
      if (delivery.id().equals("long")) {
        Thread.sleep(60_000);
      }
      while (delivery.id().equals("deaf") && hang.getCount() > 0) {
        try {
          hang.await();
        } catch (InterruptedException error) {
          // it goes on
        }
      }
      if (delivery.id().equals("short")) {
        Thread.sleep(300);
      }
      return null;
    });
    run(worker, Duration.ofSeconds(1));
    for (var id : List.of("short", "long", "deaf")) {
      queue.blocking().push(message(id, 0));
    }
    began.await();
    worker.stop();
    running.get(0).get(60, TimeUnit.SECONDS);
    assertEquals(null, state("short"));
    assertEquals(StoredMessage.State.SCHEDULED, state("long"));
    assertEquals(StoredMessage.State.SCHEDULED, state("deaf"));
    assertEquals(0, queue.blocking().get("long").orElseThrow().failures());
    hang.countDown();
    var error = assertThrows(DueqException.class, worker::run);
    assertEquals(DueqException.Kind.INVALID_INPUT, error.kind());
  }

  @Test
  void anInterruptedRunStopsGracefully() throws Exception {
    var worker = client.worker().queue(queue, delivery -> null);
    var thread = new Thread(() -> {
      worker.run();
      assertTrue(Thread.currentThread().isInterrupted());
    });
    thread.start();
    Thread.sleep(300);
    thread.interrupt();
    thread.join(60_000);
    assertTrue(!thread.isAlive());
  }

  @Test
  void anIdleWorkerOnlyBeatsAndWaits() throws Exception {
    var handled = new CountDownLatch(1);
    run(delivery -> {
      handled.countDown();
      return null;
    }, options());
    pushAll(1, "later", 3_600_000);
    pushAll(1, "m", 0);
    handled.await();
    Thread.sleep(1_500);
    var began = System.nanoTime();
    var scripts = server.calls("evalsha");
    var pops = server.calls("blpop");
    Thread.sleep(5_000);
    scripts = server.calls("evalsha") - scripts;
    pops = server.calls("blpop") - pops;
    var most = (System.nanoTime() - began) / TimeUnit.MILLISECONDS.toNanos(900) + 2;
    assertTrue(scripts <= most && pops <= most, scripts + " scripts and " + pops + " pops, instead of " + most);
  }

  @Test
  void twoWorkersShareTheMessagesAndTakeOver() throws Exception {
    Map<String, AtomicInteger> runs = Map.of("a", new AtomicInteger(), "b", new AtomicInteger());
    for (var name : List.of("a", "b")) {
      run(delivery -> {
        runs.get(name).incrementAndGet();
        Thread.sleep(5);
        return null;
      }, options().concurrency(4));
    }
    var pushed = new AtomicInteger();
    until(() -> { // on a busy machine one of them may begin late
      pushAll(100, "m" + pushed.addAndGet(100) + "-", 100);
      until(() -> meta("acked") == pushed.get());
      return runs.values().stream().allMatch(one -> one.get() > 50);
    });
    workers.get(0).stop();
    running.get(0).get(60, TimeUnit.SECONDS);
    pushAll(100, "n", 100);
    until(() -> meta("acked") == pushed.get() + 100);
    assertEquals(pushed.get() + 100, runs.get("a").get() + runs.get("b").get());
  }

  @Test
  void faultsOfTheServerLoseAndDoubleNothing() throws Exception {
    var runs = new ConcurrentHashMap<String, Integer>();
    run(delivery -> {
      runs.merge(delivery.id(), 1, Integer::sum);
      return null;
    }, options().lease(Duration.ofSeconds(20)));
    var pushed = 0;
    for (var fault : List.of("none", "kill", "cut", "freeze", "cut")) {
      pushAll(50, "m" + pushed + "-", 200);
      pushed += 50;
      switch (fault) {
        case "kill" -> {
          server.kill();
          Thread.sleep(300);
          server.start();
        }
        case "cut" -> server.command("CLIENT", "KILL", "TYPE", "normal");
        case "freeze" -> {
          server.signal("STOP");
          Thread.sleep(1_000);
          server.signal("CONT");
        }
        default -> { }
      }
      Thread.sleep(300);
    }
    until(() -> meta("acked") == 250);
    assertEquals(250, runs.size());
    assertTrue(runs.values().stream().allMatch(one -> one == 1), runs.toString());
  }

  @Test
  void aThousandHandlersAndManyMessages() throws Exception {
    var handled = new AtomicInteger();
    pushAll(20_000, "m", 0);
    var began = System.nanoTime();
    run(delivery -> {
      handled.incrementAndGet();
      return null;
    }, options().concurrency(256));
    until(() -> meta("acked") == 20_000);
    System.out.println("lives a second: " + 20_000L * 1_000_000_000L / (System.nanoTime() - began));
    assertEquals(20_000, handled.get());
    assertTrue(server.calls("evalsha") < 2_000, "calls: " + server.calls("evalsha"));
  }
}
