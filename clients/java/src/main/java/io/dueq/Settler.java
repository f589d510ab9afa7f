package io.dueq;

import static io.dueq.DueqException.invalid;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Settles the deliveries of one queue, at the partitions that have their messages. */
final class Settler {
  private static final System.Logger LOG = System.getLogger("io.dueq");
  private static final int ERROR_BYTES = 1_024;
  private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(100);

  private final Queue queue;
  private final Retry retry;
  /** Those that the worker attends: a throttle closes all of them. */
  private final Supplier<List<Partition>> partitions;

  Settler(Queue queue, Retry retry, Supplier<List<Partition>> partitions) {
    this.queue = queue;
    this.retry = retry;
    this.partitions = partitions;
  }

  /**
   * Repeats a settlement at least until the lease ends, and falls back to a retry if the script refuses it.
   * The future does not fail.
   */
  CompletableFuture<Void> settle(Delivery delivery, Settlement settlement) {
    var done = new CompletableFuture<Void>();
    settled(delivery, settlement).whenComplete((outcome, thrown) -> {
      var error = thrown == null ? null : DueqException.of(thrown);
      if (error == null) {
        if (outcome.equals("gone") || outcome.equals("lost")) {
          LOG.log(System.Logger.Level.INFO, delivery + ": " + settlement.verb + " answered " + outcome
              + ": settled before, or the lease was lost");
        }
        done.complete(null);
      } else if ((error.kind() == Kind.INVALID_INPUT || error.kind() == Kind.FULL) && !settlement.verb.equals("retry")) {
        var instead = Settlement.retry(settlement.verb + " was refused: " + error.getMessage());
        settle(delivery, instead).thenRun(() -> done.complete(null));
      } else if ((error.retryable() || error.kind() == Kind.DENIED) && Clock.now() < delivery.expires) {
        // A right may be missing for a moment only, as while users are renewed.
        Threads.after(PAUSE, () -> settle(delivery, settlement).thenRun(() -> done.complete(null)));
      } else {
        LOG.log(System.Logger.Level.ERROR, delivery + " was not settled, and is delivered again: " + error.getMessage());
        done.complete(null);
      }
    });
    return done;
  }

  private CompletableFuture<String> settled(Delivery delivery, Settlement settlement) {
    var verb = settlement.verb;
    if (verb.equals("ack_push")) {
      return CompletableFuture.supplyAsync(() -> ackPush(delivery, settlement.messages), Threads.POOL);
    }
    var id = delivery.granted.id();
    var token = delivery.token;
    List<Object> words = switch (verb) {
      case "ack" -> List.of(token, id);
      case "release" -> List.of(id, token);
      case "bury" -> List.of(id, token, cut(settlement.text));
      case "retry" -> List.of(id, token,
          settlement.word.isEmpty() ? retry.delayMs(delivery.attempt()) : settlement.word, cut(settlement.text));
      default -> List.of(id, token, settlement.word);
    };
    var outcome = queue.router.lane(delivery.partition.tag, verb, "").submit(words, true)
        .thenApply(answer -> Replies.result(verb, answer.text()).outcome());
    return !verb.equals("throttle") ? outcome : outcome.thenApplyAsync(found -> {
      if (found.equals("until")) {
        partitions.get().stream().filter(other -> other != delivery.partition)
            .forEach(other -> other.callPatiently("throttle", "", List.of("close", settlement.word)));
      }
      return found;
    }, Threads.POOL);
  }

  /** The start of a text, which ends with a whole character. */
  private static byte[] cut(String text) {
    var bytes = text.getBytes(StandardCharsets.UTF_8);
    var end = Math.min(bytes.length, ERROR_BYTES);
    while (end < bytes.length && (bytes[end] & 0xc0) == 0x80) {
      end -= 1;
    }
    return Arrays.copyOf(bytes, end);
  }

  /** Acks and stores the follow-ups in one step, but for those that the partitions' change takes elsewhere. */
  private String ackPush(Delivery delivery, List<Message> messages) {
    var id = delivery.granted.id();
    var partition = delivery.partition;
    var left = new ArrayList<Message.Encoded>();
    for (var message : messages) {
      left.add(message.encode(Routes.idOfFollowUp(id, left.size() + 1)));
    }
    for (;;) {
      var map = queue.router.map();
      var here = new ArrayList<Message.Encoded>();
      for (var message : left) {
        if (map == null || map.keeps(message.id(), partition.tag)) {
          here.add(message);
        } else if (map.isSettled()) {
          throw invalid("the follow-up \"" + Message.shown(message.id())
              + "\" is of another partition: let the library name it");
        } else {
          queue.push(message).join();
        }
      }
      if (here.isEmpty()) {
        return settled(delivery, Settlement.ack()).join();
      }
      var words = new ArrayList<Object>();
      words.add(joined(delivery.token, id));
      here.forEach(message -> words.addAll(message.words()));
      try {
        var reply = partition.callPatiently("ack_push", map == null ? "" : "m" + map.epoch(), words);
        var word = Replies.textAt("ack_push", reply, 0);
        if (word.equals("REFUSED")) {
          Replies.textsAt("ack_push", reply, 1).forEach(line -> Replies.result("ack_push", line)); // throws
        }
        return Replies.result("ack", word).outcome();
      } catch (DueqException error) {
        if (!error.isRemapped() || error.applied() != Applied.NO || !queue.router.refresh()) {
          throw error;
        }
        left = here;
      }
    }
  }

  private static byte[] joined(byte[] first, byte[] second) {
    var all = Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }
}
