package io.dueq;

import java.util.List;
import java.util.concurrent.TimeUnit;

/** Ends a batch that stays on its way from one partition to another for 2.5 s: who moved it may be dead. */
final class Stranded {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  private static final long LIMIT = TimeUnit.MILLISECONDS.toNanos(2_500);

  private final Servers servers;
  private final Partition partition;
  private String moving = "";
  private long since;

  Stranded(Servers servers, Partition partition) {
    this.servers = servers;
    this.partition = partition;
  }

  /** What a beat says of the batch; empty without one. */
  void saw(String batch, Long epoch) {
    if (!moving.equals(batch)) {
      moving = batch;
      since = Clock.now();
    }
    if (batch.isEmpty() || epoch == null || Clock.now() - since < LIMIT) {
      return;
    }
    moving = "";
    Threads.run(() -> {
      try {
        end(Replies.before(Replies.after(batch, " "), " "), "m" + epoch);
      } catch (DueqException error) {
        LOG.log(System.Logger.Level.WARNING, "queue " + partition.queue
            + ": a batch stays on its way to another partition: " + error.getMessage());
      }
    });
  }

  private void end(String tag, String fence) {
    var number = Replies.integerAt("depart", partition.call("depart", fence, List.of("", 0, tag, 5_000)), 0);
    if (number == 0) {
      return;
    }
    var arrived = new Partition(servers, partition.queue, tag)
        .callPatiently("arrive", fence, List.of(partition.tag, number, ""));
    var word = Replies.before(Replies.textAt("arrive", arrived, 0), " ");
    var verdict = word.equals("VOID") ? "back" : word.equals("APPLIED") ? "done" : null;
    if (verdict != null) {
      partition.callPatiently("depart", fence, List.of(verdict + "=" + number, 0, tag, 5_000));
    }
  }
}
