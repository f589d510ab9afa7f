package io.dueq;

import static io.dueq.DueqException.unavailable;

import io.dueq.Batches.Answer;
import io.dueq.Batches.Refused;
import io.dueq.DueqException.Applied;
import io.dueq.Partition.Patience;
import io.dueq.Routes.PartitionMap;
import io.dueq.Routes.Step;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiFunction;
import java.util.function.Consumer;

/** Sends the calls that name an id to the partition of the id, also while the partitions change. */
final class Router {
  private static final int SEARCHED_TAGS = 64;
  private static final List<Step> ONE = List.of(new Step(Routes.HOME, ""));

  final Servers servers;
  final String queue;
  /** The newest map that this client has seen; null for a queue of one partition. */
  private volatile PartitionMap map;
  private final Map<String, Partition> partitions = new ConcurrentHashMap<>();
  private final ReentrantLock refreshing = new ReentrantLock();
  // Guarded by this:
  private final Map<Name, Batches> lanes = new HashMap<>();
  private boolean isLearned;
  private List<Consumer<DueqException>> early = new ArrayList<>();

  Router(Servers servers, String queue) {
    this.servers = servers;
    this.queue = queue;
    partition(Routes.HOME); // refuses a bad name now
  }

  PartitionMap map() {
    return map;
  }

  Partition partition(String tag) {
    return partitions.computeIfAbsent(tag, one -> new Partition(servers, queue, one));
  }

  /** What the calls of a batch have in common; without a durability they wait for nothing. */
  private record Name(String tag, String verb, String fence, Durability durability) {}

  Batches lane(String tag, String verb, String fence) {
    return lane(tag, verb, fence, null);
  }

  private synchronized Batches lane(String tag, String verb, String fence, Durability durability) {
    var name = new Name(tag, verb, fence, durability);
    if (!lanes.containsKey(name)) { // those of earlier maps are not called any more
      lanes.entrySet().removeIf(old -> {
        var oldFence = old.getKey().fence;
        return !oldFence.isEmpty() && !oldFence.equals(fence) && old.getValue().isIdle();
      });
    }
    return lanes.computeIfAbsent(name, lane -> new Batches(partition(tag), verb, fence, durability));
  }

  /** Ends when no call is under way. */
  CompletableFuture<Void> drain() {
    List<Batches> all;
    synchronized (this) {
      all = List.copyOf(lanes.values());
    }
    return CompletableFuture.allOf(all.stream().map(Batches::drain).toArray(CompletableFuture[]::new));
  }

  /** An item of one id, and its result. */
  record Sent(byte[] id, List<Object> words, boolean repeatable, CompletableFuture<Answer> done) {}

  /** Sends items of one caller in batches of their partitions. */
  void send(String verb, List<Sent> items, Durability durability) {
    whenLearned(failure -> {
      if (failure != null) {
        items.forEach(item -> item.done.completeExceptionally(failure));
        return;
      }
      var seen = map;
      var groups = new LinkedHashMap<Step, List<Batches.Item>>();
      for (var item : items) {
        var steps = steps(seen, item.id);
        if (steps.size() == 1) {
          groups.computeIfAbsent(steps.get(0), step -> new ArrayList<>(items.size())).add(new Batches.Item(item.words,
              item.repeatable, (answer, error) -> answered(verb, item, durability, answer, error)));
        } else {
          sendSlowly(verb, item, durability);
        }
      }
      groups.forEach((step, group) -> lane(step.tag(), verb, step.fence(), durability).submit(group));
    });
  }

  private void answered(String verb, Sent item, Durability durability, Answer answer, Throwable error) {
    if (error instanceof Refused refused && !isFinal(refused.error)
        || error == null && answer.text().equals("MOVING") && !answer.repeated()) {
      sendSlowly(verb, item, durability);
    } else if (error != null) {
      item.done.completeExceptionally(error instanceof Refused refused ? refused.error : error);
    } else {
      item.done.complete(answer);
    }
  }

  /** Sends an item whose partition changes. */
  private void sendSlowly(String verb, Sent item, Durability durability) {
    Threads.run(() -> {
      try {
        item.done.complete(routed(item.id, (partition, fence) ->
            await(lane(partition.tag, verb, fence, durability).submit(item.words, item.repeatable))));
      } catch (RuntimeException error) {
        item.done.completeExceptionally(DueqException.of(error));
      }
    });
  }

  private static Answer await(CompletableFuture<Answer> answer) {
    try {
      return answer.join();
    } catch (CompletionException error) {
      throw error.getCause() instanceof Refused refused ? refused : DueqException.of(error);
    }
  }

  /** Whether an earlier try may have been applied at a partition that has another map now. */
  private static boolean isFinal(DueqException error) {
    return error.applied() != Applied.NO && !"BEHIND".equals(error.code());
  }

  private static List<Step> steps(PartitionMap map, byte[] id) {
    return map == null ? ONE : map.steps(id);
  }

  /** Calls `get`. Its reply is no result of an item: AWAY is an empty one, and MOVING is an error. Blocks. */
  Replies.Known get(byte[] id) {
    var found = new Object() {
      Replies.Known known = new Replies.Known(null, null);
    };
    learn();
    routed(id, (partition, fence) -> {
      var isProbe = fence.startsWith("p");
      try {
        var here = Replies.get(partition.callPatiently("get", fence, List.of(id)), id);
        // A message decides. How one ended counts only if the new partition has no message.
        if (isProbe || here.stored() != null || here.end() != null) {
          found.known = here;
        }
        return new Answer(isProbe && here.stored() == null ? "AWAY" : "FOUND", false);
      } catch (DueqException error) {
        if (error.isRemapped()) {
          throw new Refused(error);
        }
        if ("MOVING".equals(error.code())) {
          return new Answer("MOVING", false);
        }
        throw error.as(Applied.NO);
      }
    });
    return found.known;
  }

  private Answer routed(byte[] id, BiFunction<Partition, String, Answer> send) {
    var patience = new Patience();
    var movingUntil = 0L;
    for (;;) {
      var seen = map;
      var steps = steps(seen, id);
      if (steps.isEmpty()) {
        waitForMap(seen, null, unavailable("the queue " + queue + " is being deleted"), patience);
        continue;
      }
      var step = steps.get(0);
      Answer answer;
      try {
        answer = send.apply(partition(step.tag()), step.fence());
        if (steps.size() > 1 && answer.text().startsWith("AWAY")) {
          var remembered = Replies.after(answer.text(), " ");
          step = steps.get(1);
          var fence = remembered.isEmpty() ? step.fence() : "p" + step.fence().substring(1);
          var first = new Answer(remembered, answer.repeated());
          answer = send.apply(partition(step.tag()), fence);
          if (!remembered.isEmpty() && answer.text().startsWith("AWAY")) {
            return first;
          }
        }
      } catch (Refused refused) {
        if (isFinal(refused.error)) {
          throw refused.error;
        }
        waitForMap(seen, step.tag(), refused.error, patience);
        continue;
      }
      if (!answer.text().equals("MOVING")) {
        return answer;
      }
      var text = "the message \"" + Message.shown(id) + "\" is on its way to another partition";
      if (answer.repeated()) {
        throw unavailable(text + ", and the first reply was lost").as(Applied.UNKNOWN);
      }
      movingUntil = movingUntil == 0 ? Clock.now() + Partition.PATIENCE : movingUntil;
      if (Clock.now() > movingUntil) {
        throw unavailable(text + ", for 10 s already");
      }
      Partition.sleep(20);
    }
  }

  /** Learns the newest map after a refusal; pauses if there is no newer one. */
  private void waitForMap(PartitionMap seen, String tag, DueqException refused, Patience patience) {
    var failure = unavailable(refused.getMessage());
    try {
      if (refreshFrom(seen, "BEHIND".equals(refused.code()) ? tag : null)) {
        return;
      }
    } catch (DueqException error) {
      failure = error;
    }
    if (!patience.allows(failure, true)) {
      throw failure;
    }
    patience.pause();
  }

  /** Reads the map again, as after a header with another epoch. Returns whether it changed. Blocks. */
  boolean refresh() {
    return refreshFrom(map, null);
  }

  /** Reads the map at the home, one caller at a time. Returns whether it is another one than `seen`. */
  private boolean refreshFrom(PartitionMap seen, String behind) {
    refreshing.lock();
    try {
      if (!Objects.equals(map, seen)) { // another caller has read it meanwhile
        return true;
      }
      var newest = partition(Routes.HOME).readMap();
      if (seen != null && (newest == null || newest.epoch() < seen.epoch())) {
        if (newest == null && !isElsewhere(seen)) {
          map = null; // the queue is back at one partition
          return true;
        }
        // The home's master has lost its data, and nobody else tells it of this map.
        partition(Routes.HOME).callPatiently("remap", "", List.of("forward", seen.text()));
        return false;
      }
      if (!Objects.equals(newest, seen)) {
        map = newest;
        return true;
      }
      if (seen != null && behind != null && seen.next().contains(behind)) {
        partition(behind).callPatiently("remap", "", List.of("forward", seen.text()));
      }
      return false;
    } finally {
      refreshing.unlock();
    }
  }

  /** Whether another partition of this map still has it. */
  private boolean isElsewhere(PartitionMap seen) {
    var other = seen.next().stream().filter(tag -> !tag.equals(Routes.HOME)).findFirst();
    return other.isPresent() && partition(other.get()).readMap() != null;
  }

  /** Calls back at once or later, in the order of the calls, when the map was read before the first call of a cluster. */
  private void whenLearned(Consumer<DueqException> work) {
    synchronized (this) {
      if (!isLearned) {
        early.add(work);
        if (early.size() == 1) {
          Threads.run(this::learnOnce);
        }
        return;
      }
    }
    work.accept(null);
  }

  private void learnOnce() {
    DueqException failure = null;
    try {
      readFirstMap();
    } catch (RuntimeException error) {
      failure = DueqException.of(error);
    }
    List<Consumer<DueqException>> all;
    synchronized (this) {
      all = early;
      early = new ArrayList<>();
      isLearned = failure == null;
      if (isLearned) {
        all.forEach(work -> work.accept(null)); // does not block, and later calls must not overtake them
      }
    }
    if (failure != null) {
      var why = failure;
      all.forEach(work -> work.accept(why));
    }
  }

  private void learn() {
    var learned = new CompletableFuture<Void>();
    whenLearned(failure -> {
      if (failure == null) {
        learned.complete(null);
      } else {
        learned.completeExceptionally(failure);
      }
    });
    try {
      learned.join();
    } catch (CompletionException error) {
      throw DueqException.of(error);
    }
  }

  private void readFirstMap() {
    var patience = new Patience();
    for (;;) {
      try {
        if (!servers.isCluster()) {
          return;
        }
        break;
      } catch (DueqException error) {
        if (!patience.allows(error, true)) {
          throw error;
        }
        patience.pause();
      }
    }
    try {
      refreshFrom(null, null);
    } catch (DueqException error) {
      if (!error.isOutage()) {
        throw error;
      }
      search();
    }
  }

  /** Takes the newest map that any partition has, as the home is away. */
  private void search() {
    var reads = new ArrayList<CompletableFuture<PartitionMap>>();
    for (var tag = 0; tag < SEARCHED_TAGS; tag += 1) {
      var one = partition(String.valueOf(tag));
      reads.add(CompletableFuture.supplyAsync(one::readMap, Threads.POOL).exceptionally(error -> null));
    }
    for (var read : reads) {
      var found = read.join();
      if (found != null && (map == null || found.epoch() > map.epoch())) {
        map = found;
      }
    }
  }
}
