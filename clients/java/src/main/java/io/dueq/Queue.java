package io.dueq;

import static io.dueq.DueqException.invalid;

import io.dueq.Replies.Result;
import io.dueq.Router.Sent;
import io.dueq.model.CancelOutcome;
import io.dueq.model.MessageEnd;
import io.dueq.model.Receipt;
import io.dueq.model.Rescheduled;
import io.dueq.model.RunNowOutcome;
import io.dueq.model.ScheduleInfo;
import io.dueq.model.StoredMessage;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * One queue. Futures fail with {@link DueqException}; what may be expected is a value. What depends on a future
 * without an executor runs on a thread of this library.
 */
public final class Queue {
  final Client client;
  final Router router;
  private final Durability durability;

  Queue(Client client, Router router, Durability durability) {
    this.client = client;
    this.router = router;
    this.durability = durability;
  }

  /** This queue with calls that wait until replicas or disks have confirmed them. */
  public Queue durability(Durability value) {
    return new Queue(client, router, value);
  }

  public String name() {
    return router.queue;
  }

  /** The same calls, which wait for their results. */
  public Blocking blocking() {
    return new Blocking(this);
  }

  /** Stores a message that is due at once. */
  public CompletableFuture<Receipt> push(String payload) {
    return push(Message.of(payload));
  }

  /** Stores a message. Pushes that are made while a call is under way share the next call. */
  public CompletableFuture<Receipt> push(Message message) {
    return attempt(() -> push(message.encode(null)));
  }

  CompletableFuture<Receipt> push(Message.Encoded message) {
    return push(message, sent -> router.send(message.verb(), List.of(sent), durability));
  }

  private CompletableFuture<Receipt> push(Message.Encoded message, Consumer<Sent> send) {
    return item(message.verb(), message.id(), message.words(), message.repeatable(), send, found -> new Receipt(
        Message.shown(message.id()), Replies.named(Receipt.Outcome.class, found.outcome()),
        Optional.ofNullable(found.state()), Replies.optional(found.ms())));
  }

  /** What became of one message of many: its receipt, or the error that it failed by. */
  public record Pushed(Optional<Receipt> receipt, Optional<DueqException> error) {}

  /** Stores many messages in few calls. The results are in the order of the messages. */
  public CompletableFuture<List<Pushed>> pushMany(Collection<Message> messages) {
    var byVerb = new LinkedHashMap<String, List<Sent>>();
    var all = messages.stream().map(message -> attempt(() -> {
      var encoded = message.encode(null);
      return push(encoded, byVerb.computeIfAbsent(encoded.verb(), verb -> new ArrayList<>())::add);
    }).handle((receipt, error) -> new Pushed(
        Optional.ofNullable(receipt), Optional.ofNullable(error).map(DueqException::of)))).toList();
    byVerb.forEach((verb, sent) -> router.send(verb, sent, durability));
    return CompletableFuture.allOf(all.toArray(CompletableFuture[]::new))
        .thenApply(ended -> all.stream().map(CompletableFuture::join).toList());
  }

  /** Removes a message that waits. Repeated, it is CANCELLED for 12 s. */
  public CompletableFuture<CancelOutcome> cancel(String id) {
    return cancel("cancel", id);
  }

  /** The same, and a dead message too. */
  public CompletableFuture<CancelOutcome> cancelDead(String id) {
    return cancel(Batches.CANCEL_DEAD, id);
  }

  private CompletableFuture<CancelOutcome> cancel(String verb, String id) {
    return attempt(() -> {
      var raw = Message.checkedId(Message.encoded(id));
      return item(verb, raw, List.of(raw), true, found -> Replies.named(CancelOutcome.class, found.outcome()));
    });
  }

  /** Moves a message that waits. */
  public CompletableFuture<Rescheduled> reschedule(String id, Duration delay) {
    return attempt(() -> reschedule(id, Message.dueWord(delay, null), "", false));
  }

  public CompletableFuture<Rescheduled> reschedule(String id, Instant due) {
    return attempt(() -> reschedule(id, Message.dueWord(null, due), "", false));
  }

  /** Moves a message only if it is due at `expected`. So it may be repeated. */
  public CompletableFuture<Rescheduled> reschedule(String id, Instant due, Instant expected) {
    return attempt(() -> reschedule(id, Message.dueWord(null, due), String.valueOf(Message.unixMs(expected)), true));
  }

  private CompletableFuture<Rescheduled> reschedule(String id, String due, String expected, boolean repeatable) {
    var raw = Message.checkedId(Message.encoded(id));
    return item("reschedule", raw, List.of(raw, due, expected), repeatable, found ->
        new Rescheduled(Replies.named(Rescheduled.Outcome.class, found.outcome()), Replies.optional(found.ms())));
  }

  /** Makes a message that waits due now. */
  public CompletableFuture<RunNowOutcome> runNow(String id) {
    return attempt(() -> {
      var raw = Message.checkedId(Message.encoded(id));
      return item("run_now", raw, List.of(raw), false, found -> Replies.named(RunNowOutcome.class, found.outcome()));
    });
  }

  /** The message, whatever its state. */
  public CompletableFuture<Optional<StoredMessage>> get(String id) {
    return known(id).thenApply(known -> Optional.ofNullable(known.stored()));
  }

  /** How the message ended, if a window remembers it, or if it was cancelled in the last 12 s. */
  public CompletableFuture<Optional<MessageEnd>> endOf(String id) {
    return known(id).thenApply(known -> Optional.ofNullable(known.end()));
  }

  private CompletableFuture<Replies.Known> known(String id) {
    return background(() -> router.get(Message.checkedId(Message.encoded(id))));
  }

  /** The schedules of one owner, which code declares. */
  public Schedules schedules(String set) {
    return new Schedules(this, set);
  }

  public Schedules.One schedule(String name) {
    return new Schedules.One(this, name);
  }

  public CompletableFuture<List<ScheduleInfo>> listSchedules() {
    return background(() -> Schedules.all(this));
  }

  /** The partition that has the schedules: a queue of several partitions has none. */
  Partition home() {
    return router.partition(Routes.HOME);
  }

  /** A call that blocks. */
  <T> CompletableFuture<T> background(Supplier<T> call) {
    return attempt(() -> {
      client.check();
      return CompletableFuture.supplyAsync(call, Threads.POOL).exceptionally(error -> {
        throw DueqException.of(error);
      });
    });
  }

  private <T> CompletableFuture<T> item(String verb, byte[] id, List<Object> words, boolean repeatable,
      Function<Result, T> decode) {
    return item(verb, id, words, repeatable, sent -> router.send(verb, List.of(sent), durability), decode);
  }

  private <T> CompletableFuture<T> item(String verb, byte[] id, List<Object> words, boolean repeatable,
      Consumer<Sent> send, Function<Result, T> decode) {
    client.check();
    var sent = new Sent(id, words, repeatable, new CompletableFuture<>());
    var result = sent.done().handle((answer, error) -> {
      if (error != null) {
        throw DueqException.of(error).ofMessage(Message.shown(id));
      }
      Result found;
      try {
        found = Replies.result(verb.equals(Batches.CANCEL_DEAD) ? "cancel" : verb, answer.text());
      } catch (DueqException refused) {
        // The limits of the queue may have changed since an earlier try, which may have been applied.
        throw answer.repeated() ? refused.ofRepeated() : refused;
      }
      return decode.apply(found);
    });
    send.accept(sent);
    return result;
  }

  /** Bad input fails the future, as everything else does. */
  private static <T> CompletableFuture<T> attempt(Supplier<CompletableFuture<T>> call) {
    try {
      return call.get();
    } catch (ArithmeticException error) {
      return CompletableFuture.failedFuture(invalid("a time is out of its range"));
    } catch (DueqException error) {
      return CompletableFuture.failedFuture(error);
    }
  }

  /** The calls of a queue as methods that return their results, and throw {@link DueqException}. */
  public static final class Blocking {
    private final Queue queue;

    private Blocking(Queue queue) {
      this.queue = queue;
    }

    private static <T> T await(CompletableFuture<T> result) {
      try {
        return result.join();
      } catch (CompletionException error) {
        throw DueqException.of(error);
      }
    }

    public Receipt push(String payload) {
      return await(queue.push(payload));
    }

    public Receipt push(Message message) {
      return await(queue.push(message));
    }

    public List<Pushed> pushMany(Collection<Message> messages) {
      return await(queue.pushMany(messages));
    }

    public CancelOutcome cancel(String id) {
      return await(queue.cancel(id));
    }

    public CancelOutcome cancelDead(String id) {
      return await(queue.cancelDead(id));
    }

    public Rescheduled reschedule(String id, Duration delay) {
      return await(queue.reschedule(id, delay));
    }

    public Rescheduled reschedule(String id, Instant due) {
      return await(queue.reschedule(id, due));
    }

    public Rescheduled reschedule(String id, Instant due, Instant expected) {
      return await(queue.reschedule(id, due, expected));
    }

    public RunNowOutcome runNow(String id) {
      return await(queue.runNow(id));
    }

    public Optional<StoredMessage> get(String id) {
      return await(queue.get(id));
    }

    public Optional<MessageEnd> endOf(String id) {
      return await(queue.endOf(id));
    }
  }
}
