package io.dueq;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.dueq.Partition.Attempt;
import io.dueq.Partition.Patience;
import io.dueq.Replies.Reply;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/**
 * The calls of one verb at one partition under one fence: while one call is under way, the items that come share the
 * next one.
 */
final class Batches {
  private static final int BATCH_BYTES = 1024 * 1024;
  /** With this many waiting items a second call may be under way: a call costs Redis about as much as eight items. */
  private static final int ENOUGH = 32;
  private static final long LINGER = TimeUnit.MILLISECONDS.toNanos(1);
  private static final Map<String, Integer> MOST = Map.of("push", 256, "ack", 256, "upsert", 64, "throttle", 16);
  private static final Set<String> SETTLEMENTS =
      Set.of("ack", "again", "release", "bury", "retry", "snooze", "throttle");
  /** The verb of a cancel that takes dead messages too. */
  static final String CANCEL_DEAD = "cancel_dead";

  /** The result of one item as the script said it, and whether the item was sent more than once. */
  record Answer(String text, boolean repeated) {}

  /** The partition has another map; no try of the item was applied, or `error` says that one may have been. */
  static final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1;
    final transient DueqException error;

    Refused(DueqException error) {
      super(error);
      this.error = error;
    }
  }

  /** Its arguments, whether it may be sent twice, and who is told of its result. */
  record Item(List<Object> words, boolean repeatable, BiConsumer<Answer, Throwable> done) {
    private int bytes() {
      var sum = 0;
      for (var word : words) {
        sum += word instanceof byte[] bytes ? bytes.length : word.toString().length();
      }
      return sum;
    }
  }

  /** Items of one caller, which go in one call: divided, their caller would wait for two. */
  private record Group(List<Item> items, int bytes) {}

  private final Partition partition;
  private final String lane;
  private final String verb;
  private final String fence;
  private final Durability durability;
  private final boolean settles;
  private final int enough;
  private final int most;
  // Guarded by this:
  private final ArrayDeque<Group> waiting = new ArrayDeque<>();
  private int count; // of the waiting items
  private int unsafe; // waiting items that must not be repeated
  private int calls;
  private boolean isOrdered; // the call under way has such an item
  private boolean isStarting;
  private Runnable takeBack; // the timer that is about to start a call
  private final List<CompletableFuture<Void>> drained = new ArrayList<>();

  Batches(Partition partition, String lane, String fence, Durability durability) {
    this.durability = durability;
    this.partition = partition;
    this.lane = lane;
    this.verb = lane.equals(CANCEL_DEAD) ? "cancel" : lane;
    this.fence = fence;
    // Nobody waits for the settlements of handlers, so they wait a little for each other.
    this.settles = SETTLEMENTS.contains(lane);
    this.enough = settles ? 128 : ENOUGH;
    this.most = MOST.getOrDefault(verb, 128);
  }

  CompletableFuture<Answer> submit(List<Object> words, boolean repeatable) {
    var done = new CompletableFuture<Answer>();
    submit(List.of(new Item(words, repeatable, (answer, error) -> {
      if (error == null) {
        done.complete(answer);
      } else {
        done.completeExceptionally(error);
      }
    })));
    return done;
  }

  /** Adds items that go in one call, as far as one call takes them. */
  synchronized void submit(List<Item> items) {
    var from = 0;
    var bytes = 0;
    for (var at = 0; at < items.size(); at += 1) {
      var item = items.get(at);
      if (at > from && (at - from == most || bytes + item.bytes() > BATCH_BYTES)) {
        waiting.add(new Group(items.subList(from, at), bytes));
        from = at;
        bytes = 0;
      }
      bytes += item.bytes();
      unsafe += item.repeatable ? 0 : 1;
    }
    waiting.add(new Group(items.subList(from, items.size()), bytes));
    count += items.size();
    wake();
  }

  synchronized boolean isIdle() {
    return waiting.isEmpty() && calls == 0;
  }

  /** Ends when nothing is waiting or under way. */
  synchronized CompletableFuture<Void> drain() {
    var ended = new CompletableFuture<Void>();
    if (isIdle()) {
      ended.complete(null);
    } else {
      drained.add(ended);
    }
    return ended;
  }

  private void wake() {
    if (waiting.isEmpty() || !mayStart()) {
      return;
    }
    var isFull = count >= enough;
    if (isStarting && (!isFull || takeBack == null)) {
      return;
    }
    if (takeBack != null) {
      takeBack.run();
      takeBack = null;
    }
    isStarting = true;
    if (settles && !isFull) {
      takeBack = Threads.after(LINGER, this::start);
    } else {
      Threads.run(this::start); // not at once: the other callers that are about to run add their items first
    }
  }

  /** Items that must not be repeated keep their order, so their calls follow each other. */
  private boolean mayStart() {
    return calls == 0 || calls == 1 && count >= enough && unsafe == 0 && !isOrdered;
  }

  private void start() {
    List<Item> batch;
    synchronized (this) {
      isStarting = false;
      takeBack = null;
      batch = mayStart() ? take() : List.of();
      if (batch.isEmpty()) {
        return;
      }
      calls += 1;
      isOrdered |= batch.stream().anyMatch(item -> !item.repeatable);
      wake();
    }
    var finished = new Call(batch).finish();
    List<CompletableFuture<Void>> idle = List.of();
    synchronized (this) {
      calls -= 1;
      isOrdered &= calls > 0;
      wake();
      if (isIdle()) {
        idle = List.copyOf(drained);
        drained.clear();
      }
    }
    // Only now: what depends on an item may wait for another call.
    finished.forEach(Runnable::run);
    idle.forEach(one -> one.complete(null));
  }

  private List<Item> take() {
    var batch = new ArrayList<Item>();
    for (var bytes = 0; !waiting.isEmpty();) {
      var next = waiting.peek();
      bytes += next.bytes;
      if (!batch.isEmpty() && (batch.size() + next.items.size() > most || bytes > BATCH_BYTES)) {
        break;
      }
      batch.addAll(waiting.poll().items);
    }
    count -= batch.size();
    batch.forEach(item -> unsafe -= item.repeatable ? 0 : 1);
    return batch;
  }

  /** A batch that is sent until each of its items has a result. */
  private final class Call {
    private final Patience patience = new Patience();
    private final long began = Clock.now();
    private List<Item> batch;
    private List<Runnable> finished = new ArrayList<>();
    private Attempt attempt;
    private boolean repeated;

    Call(List<Item> batch) {
      this.batch = batch;
    }

    /** Returns what tells the callers of the last results. */
    List<Runnable> finish() {
      try {
        for (send(); !batch.isEmpty(); send()) {
          var early = finished;
          finished = new ArrayList<>();
          Threads.run(() -> early.forEach(Runnable::run));
          patience.pause();
        }
      } catch (RuntimeException error) {
        fail(DueqException.of(error));
      }
      return finished;
    }

    private void finish(Item item, Answer answer) {
      finished.add(() -> item.done.accept(answer, null));
    }

    private void finish(Item item, Throwable error) {
      finished.add(() -> item.done.accept(null, error));
    }

    private void send() {
      var words = new ArrayList<Object>();
      try {
        words.addAll(prefix());
      } catch (DueqException error) {
        if (!patience.allows(error, true)) {
          fail(error);
        }
        return;
      }
      addItems(words);
      DueqException missing;
      List<String> texts;
      try {
        var confirmed = partition.callDurably(durability, verb, fence, words);
        missing = confirmed.missing();
        texts = textsOf(confirmed.reply());
      } catch (DueqException error) {
        notReplied(error);
        return;
      }
      var sent = batch;
      batch = new ArrayList<>();
      var again = new ArrayList<Item>();
      for (var at = 0; at < sent.size(); at += 1) {
        var item = sent.get(at);
        if (missing == null || !Durability.isChange(verb, texts.get(at))) {
          judge(item, texts.get(at));
        } else if (item.repeatable && patience.allows(missing, true)) {
          again.add(item); // another master may lack the change
        } else {
          finish(item, missing.kind() == Kind.UNCONFIRMED ? missing
              : DueqException.unconfirmed(verb, "the wait for it failed: " + missing.getMessage()));
        }
      }
      if (!again.isEmpty()) {
        batch.addAll(again);
        repeated = true;
      } else if (!batch.isEmpty()) { // the items that are left are sent as a new call
        attempt = null;
        repeated = false;
      }
    }

    /** What is sent before the items. */
    private List<Object> prefix() {
      if (verb.equals("push") || verb.equals("upsert")) {
        if (attempt == null) {
          partition.learnTime(false);
          attempt = Attempt.of(partition.clock);
        }
        return List.of(attempt.argument());
      }
      if (!verb.equals("cancel")) {
        return List.of();
      }
      var dead = lane.equals(CANCEL_DEAD) ? "1" : "";
      if (!repeated) {
        return List.of(dead);
      }
      partition.learnTime(true);
      return List.of((dead + " since=" + partition.clock.earliestUs(began) / 1_000).strip());
    }

    /** An ack names each claim once. */
    private void addItems(List<Object> words) {
      if (!verb.equals("ack")) {
        batch.forEach(item -> words.addAll(item.words));
        return;
      }
      var claims = new LinkedHashMap<ByteBuffer, List<Item>>();
      for (var item : batch) {
        claims.computeIfAbsent(ByteBuffer.wrap((byte[]) item.words.get(0)), token -> new ArrayList<>()).add(item);
      }
      batch = new ArrayList<>();
      for (var items : claims.values()) {
        words.add(items.get(0).words.get(0));
        words.add(items.size());
        items.forEach(item -> words.add(item.words.get(1)));
        batch.addAll(items);
      }
    }

    /** Gives a result to its caller, or keeps the item for a new call. */
    private void judge(Item item, String text) {
      var then = attempt == null ? Replies.Verdict.FINAL : Replies.verdict(text, repeated, attempt.latestStartUs());
      if (then == Replies.Verdict.FINAL) {
        finish(item, new Answer(text, repeated));
      } else if (then == Replies.Verdict.UNKNOWN) {
        finish(item, new DueqException(Kind.TIMEOUT, Applied.UNKNOWN,
            verb + " was repeated for up to 10 s and its first reply was lost"));
      } else {
        var late = new DueqException(Kind.TIMEOUT, Applied.NO, verb + " was too late: the server's clock was set");
        if (patience.allows(late, true)) {
          batch.add(item);
        } else {
          finish(item, late);
        }
      }
    }

    private void notReplied(DueqException error) {
      if (error.isRemapped()) {
        var refused = new Refused(repeated ? error.ofRepeated() : error);
        batch.forEach(item -> finish(item, refused));
        batch = List.of();
        return;
      }
      var again = new ArrayList<Item>();
      var failed = new ArrayList<Item>();
      batch.forEach(item -> (patience.allows(error, item.repeatable) ? again : failed).add(item));
      batch = failed;
      fail(error);
      batch = again;
      repeated |= error.applied() != Applied.NO;
    }

    private void fail(DueqException error) {
      var failure = repeated ? error.ofRepeated() : error;
      batch.forEach(item -> finish(item, failure));
      batch = List.of();
    }

    private List<String> textsOf(Reply reply) {
      var texts = Replies.textsAt(verb, reply, 0);
      if (texts.size() == 1 && (verb.equals("push") || verb.equals("ack"))) { // one result stands for all items
        return Collections.nCopies(batch.size(), texts.get(0));
      }
      if (texts.size() != batch.size()) {
        throw DueqException.unexpected(verb, texts.size() + " results for " + batch.size() + " items");
      }
      return texts;
    }
  }
}
