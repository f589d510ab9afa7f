package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.model.ScheduleChange;
import io.dueq.model.ScheduleInfo;
import io.dueq.model.Tick;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Schedules that are declared from code. */
@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SchedulesTest extends WorkerTest {
  private static Schedule every(String name, long seconds) {
    return Schedule.every(name, Duration.ofSeconds(seconds));
  }

  private static Schedules.Options with() {
    return new Schedules.Options();
  }

  private static List<String> names(List<ScheduleChange> changes) {
    return changes.stream().map(ScheduleChange::name).toList();
  }

  private static DueqException refused(CompletableFuture<?> call) {
    var error = DueqException.of(assertThrows(CompletionException.class, call::join));
    assertEquals(List.of(DueqException.Kind.INVALID_INPUT, DueqException.Applied.NO), List.of(error.kind(), error.applied()));
    return error;
  }

  @Test
  void aSetIsDeclaredChangedAndPruned() {
    var billing = queue.schedules("billing");
    var sync = every("sync", 900);
    var report = every("report", 3_600).payload("{}");
    assertEquals(List.of("sync"), names(billing.apply(List.of(sync), with().dryRun()).join().created()));
    assertEquals(List.of(), queue.listSchedules().join());
    var done = billing.apply(List.of(sync, report), with().revision(2).fireNow()).join();
    assertEquals(List.of("sync", "report"), names(done.created()));
    assertTrue(done.created().get(0).nextMs().isPresent());
    done = billing.apply(List.of(sync, every("report", 60)), with().revision(2)).join();
    assertEquals(List.of(List.of("sync"), List.of("report")), List.of(names(done.kept()), names(done.changed())));
    var stale = refused(billing.apply(List.of(), with().revision(1).prune()));
    assertEquals("STALE", stale.code());
    assertTrue(stale.getMessage().contains("newer revision 2"), stale.getMessage());
    var fast = refused(billing.apply(List.of(Schedule.every("fast", Duration.ofMillis(1)), every("new", 60))));
    assertTrue(fast.getMessage().matches("schedule fast: .*nothing was changed.*"), fast.getMessage());
    assertEquals(List.of("report", "sync"), queue.listSchedules().join().stream().map(ScheduleInfo::name).toList());
    assertEquals(List.of("sync"), billing.apply(List.of(report), with().prune()).join().removed());
  }

  @Test
  void aPruneRemovesManyAndAnApplyDeclaresAtMost24() {
    var many = new ArrayList<>(IntStream.range(0, 24).mapToObj(n -> every("s" + n, 60)).toList());
    queue.schedules("one").apply(many).join();
    assertEquals(24, queue.listSchedules().join().size());
    assertEquals(24, queue.schedules("one").apply(List.of(), with().prune().forget()).join().removed().size());
    many.add(every("more", 60));
    assertTrue(refused(queue.schedules("one").apply(many)).getMessage().contains("several sets"));
  }

  @Test
  void oneScheduleIsReadPausedAndRemoved() {
    queue.schedules("billing").apply(List.of(every("sync", 900)), with().fireNow()).join();
    var one = queue.schedule("sync");
    var found = one.get().join().orElseThrow();
    assertEquals(List.of(ScheduleInfo.State.ACTIVE, 1L, "set=billing every=900000"),
        List.of(found.state(), found.triggered(), found.spec()));
    assertTrue(one.pause().join());
    assertEquals(List.of(ScheduleInfo.State.PAUSED), queue.listSchedules().join().stream().map(ScheduleInfo::state).toList());
    assertTrue(one.resume().join());
    assertTrue(one.remove().join());
    assertFalse(one.remove().join());
    assertEquals(Optional.empty(), one.get().join());
  }

  @Test
  void aWorkerHandlesTheTicks() throws Exception {
    var ticks = Collections.synchronizedList(new ArrayList<Optional<Tick>>());
    queue.blocking().push(message("sync@7", 0)); // an id like that of a tick
    queue.schedules("billing")
        .apply(List.of(Schedule.every("sync", Duration.ofMillis(100)).missed(Schedule.Missed.ALL).limit(3))).join();
    run(delivery -> {
      ticks.add(delivery.tick());
      return null;
    }, options());
    until(() -> ticks.size() == 4);
    var fires = ticks.stream().flatMap(Optional::stream).filter(tick -> tick.schedule().equals("sync"))
        .map(Tick::nominalMs).sorted().toList();
    assertEquals(List.of(0L, 100L, 200L), fires.stream().map(ms -> ms - fires.get(0)).toList());
  }
}
