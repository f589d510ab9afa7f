package io.dueq;

import static io.dueq.DueqException.invalid;
import static io.dueq.Replies.integer;
import static io.dueq.Replies.list;
import static io.dueq.Replies.text;

import io.dueq.Replies.Reply;
import io.dueq.model.ScheduleChange;
import io.dueq.model.ScheduleChanges;
import io.dueq.model.ScheduleInfo;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/** All schedules of one owner, such as those of a service: {@code queue.schedules("billing")}. */
public final class Schedules {
  private static final int MOST = 24;
  private static final int PAGE = 64;

  private final Queue queue;
  private final String name;

  Schedules(Queue queue, String name) {
    this.queue = queue;
    this.name = name;
  }

  /** How a set is declared. */
  public static final class Options {
    private String revision = "";
    private final List<String> flags = new ArrayList<>();

    private Options with(String flag) {
      flags.add(flag);
      return this;
    }

    /** Such as the number of a release. A lower one than the stored one is refused. */
    public Options revision(long value) {
      revision = String.valueOf(value);
      return this;
    }

    /** Removes the other schedules of the set. */
    public Options prune() {
      return with("prune");
    }

    /** Forgets the set and its revision, if it has no schedules then. */
    public Options forget() {
      return with("forget");
    }

    /** Makes a tick of each new schedule at once. */
    public Options fireNow() {
      return with("now");
    }

    /** Changes nothing, and answers what would be changed. */
    public Options dryRun() {
      return with("dry_run");
    }
  }

  /** Creates and changes schedules, as {@link #apply(Collection, Options)} without options. */
  public CompletableFuture<ScheduleChanges> apply(Collection<Schedule> schedules) {
    return apply(schedules, new Options());
  }

  /**
   * Creates and changes schedules, up to 24: all of them, or none. One that is the same as before stays as it is.
   * The first apply gives the queue layout 4, which releases before 0.2 refuse.
   */
  public CompletableFuture<ScheduleChanges> apply(Collection<Schedule> schedules, Options options) {
    var items = List.copyOf(schedules);
    return queue.background(() -> {
      if (items.size() > MOST) {
        throw invalid(items.size() + " schedules: an apply declares up to " + MOST + "; make several sets of them");
      }
      var words = new ArrayList<Object>(List.of(name, options.revision, String.join(" ", options.flags)));
      items.forEach(item -> words.addAll(item.words()));
      var removed = new ArrayList<String>();
      for (;;) { // a call removes up to 24
        var reply = queue.home().callPatiently("schedule", "", words);
        var changes = declared(items, reply);
        removed.addAll(changes.removed());
        if (Replies.integerAt("schedule", reply, 3) != 1 || options.flags.contains("dry_run")) {
          return new ScheduleChanges(changes.created(), changes.changed(), changes.kept(), removed);
        }
      }
    });
  }

  private static ScheduleChanges declared(List<Schedule> items, Reply reply) {
    return Replies.guarded("schedule", reply.body(), () -> {
      var word = text(reply.body().get(0));
      if (Replies.before(word, " ").equals("STALE")) {
        throw invalid("the set has the newer revision " + Replies.after(word, " ") + ": nothing was changed", "STALE");
      }
      var texts = list(reply.body().get(1)).stream().map(Replies::text).toList();
      var refused = new ArrayList<String>();
      var changes = new HashMap<String, List<ScheduleChange>>();
      for (var at = 0; at < texts.size(); at += 1) {
        var result = Replies.before(texts.get(at), " ");
        var detail = Replies.after(texts.get(at), " ");
        if (word.equals("INVALID")) {
          if (result.equals("INVALID")) {
            refused.add("schedule " + items.get(at).name + ": " + detail);
          }
        } else {
          var next = Long.parseLong(detail);
          changes.computeIfAbsent(result, one -> new ArrayList<>()).add(new ScheduleChange(items.get(at).name,
              next == 0 ? OptionalLong.empty() : OptionalLong.of(next)));
        }
      }
      if (word.equals("INVALID")) {
        throw invalid(String.join("; ", refused) + " (nothing was changed)");
      }
      return new ScheduleChanges(changes.getOrDefault("CREATED", List.of()), changes.getOrDefault("CHANGED", List.of()),
          changes.getOrDefault("KEPT", List.of()), list(reply.body().get(2)).stream().map(Replies::text).toList());
    });
  }

  /** One schedule: {@code queue.schedule("sync")}. */
  public static final class One {
    private final Queue queue;
    private final String name;

    One(Queue queue, String name) {
      this.queue = queue;
      this.name = name;
    }

    public CompletableFuture<Optional<ScheduleInfo>> get() {
      return queue.background(() -> page(queue, List.of(name)).found.stream().findFirst());
    }

    /** Its fires count as paused until `resume`. False if there is no such schedule. */
    public CompletableFuture<Boolean> pause() {
      return amend("pause");
    }

    public CompletableFuture<Boolean> resume() {
      return amend("resume");
    }

    /** Removes it; its ticks stay. */
    public CompletableFuture<Boolean> remove() {
      return amend("remove");
    }

    private CompletableFuture<Boolean> amend(String change) {
      return queue.background(() -> {
        var reply = queue.home().callPatiently("amend", "", List.of(change, name));
        return !Replies.textsAt("amend", reply, 0).get(0).equals("GONE");
      });
    }
  }

  private record Page(byte[] cursor, List<ScheduleInfo> found) {}

  /** All schedules of a queue. Blocks. */
  static List<ScheduleInfo> all(Queue queue) {
    var all = new ArrayList<ScheduleInfo>();
    for (var cursor = new byte[0];;) {
      var page = page(queue, List.of(cursor, PAGE, ""));
      all.addAll(page.found);
      cursor = page.cursor;
      if (cursor.length == 0) {
        return all;
      }
    }
  }

  private static Page page(Queue queue, List<Object> words) {
    var reply = queue.home().callPatiently("schedules", "", words);
    return Replies.guarded("schedules", reply.body(), () -> new Page(Replies.bytes(reply.body().get(0)),
        list(reply.body().get(1)).stream().map(Schedules::info).toList()));
  }

  private static ScheduleInfo info(Object raw) {
    var item = list(raw);
    var state = Replies.named(ScheduleInfo.State.class, text(item.get(1)));
    var counts = item.subList(5, 10).stream().map(Replies::integer).toList();
    return new ScheduleInfo(text(item.get(0)), state,
        state == ScheduleInfo.State.ACTIVE ? OptionalLong.of(integer(item.get(2))) : OptionalLong.empty(), counts.get(0),
        counts.get(1), counts.get(2), counts.get(3), counts.get(4), text(item.get(11)), text(item.get(12)),
        text(item.get(13)));
  }
}
