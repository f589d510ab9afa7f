import io.dueq.Client;
import io.dueq.Message;
import io.dueq.Queue;
import io.dueq.Worker;
import io.dueq.model.CancelOutcome;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Phaser;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * An order is rated five stars 48 hours after its delivery, unless its buyer has rated it by then.
 * Replays the orders of a file a million times faster, and fails if the books do not balance.
 * From the folder of the client, with the orders of the repository:
 * <pre>
 * mvn -q compile dependency:build-classpath -Dmdep.outputFile=target/classpath
 * java -cp target/classes:$(cat target/classpath) examples/OrderAutoRating.java \
 *   ../../examples/order_auto_rating/orders.csv [SPEED]
 * </pre>
 * REDIS_URL names the server; without it, redis://127.0.0.1:6379/.
 */
public final class OrderAutoRating {
  private static final Duration WINDOW = Duration.ofHours(48);

  /** Times since the first delivery. A review is null if it never comes. */
  private record Order(String id, Duration delivered, Duration reviewed) {}

  private record Event(Duration at, Runnable happens) {}

  private final Set<String> rated = ConcurrentHashMap.newKeySet();
  private final AtomicInteger cancelled = new AtomicInteger();
  private final AtomicInteger replaced = new AtomicInteger();
  /** The messages that were neither rated nor cancelled yet, and the replay. */
  private final Phaser open = new Phaser(1);
  private final ConcurrentLinkedQueue<String> complaints = new ConcurrentLinkedQueue<>();
  private final Queue queue;
  private final long speed;
  private final long start = System.nanoTime();

  private OrderAutoRating(Queue queue, long speed) {
    this.queue = queue;
    this.speed = speed;
  }

  public static void main(String[] words) throws Exception {
    var orders = read(Path.of(words[0]));
    var url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379/");
    try (var client = Client.connect(url)) {
      var speed = words.length > 1 ? Long.parseLong(words[1]) : 1_000_000;
      new OrderAutoRating(client.queue("orders-" + System.currentTimeMillis()), speed).replay(client, orders);
    }
  }

  private static List<Order> read(Path file) throws Exception {
    var rows = Files.readAllLines(file).stream().skip(1).map(line -> line.split(",", -1)).toList();
    var first = LocalDateTime.parse(rows.get(0)[1]);
    return rows.stream().map(row -> new Order(row[0], Duration.between(first, LocalDateTime.parse(row[1])),
        row[2].isEmpty() ? null : Duration.between(first, LocalDateTime.parse(row[2])))).toList();
  }

  /** How long it is until then, in the time of the replay. */
  private Duration until(Duration at) {
    var left = start + at.dividedBy(speed).toNanos() - System.nanoTime();
    return Duration.ofNanos(Math.max(left, 0));
  }

  private void replay(Client client, List<Order> orders) throws Exception {
    var worker = client.worker().queue(queue, delivery -> {
      if (System.currentTimeMillis() < delivery.dueMs()) {
        complaints.add(delivery.id() + " was rated early");
      }
      if (rated.add(delivery.id())) {
        open.arriveAndDeregister();
      } else {
        complaints.add(delivery.id() + " was rated twice");
      }
      return null;
    }, new Worker.Options().concurrency(64));
    var working = CompletableFuture.runAsync(worker::run);
    var events = new ArrayList<Event>();
    var lives = ConcurrentHashMap.<CompletableFuture<?>>newKeySet();
    var reviewed = 0;
    for (var order : orders) {
      if (order.reviewed() != null && order.reviewed().compareTo(order.delivered()) <= 0) {
        reviewed += 1;
        continue;
      }
      var pushed = new CompletableFuture<Void>();
      lives.add(pushed);
      open.register();
      events.add(new Event(order.delivered(), () -> queue
          .push(Message.of(order.id()).id(order.id()).delay(until(order.delivered().plus(WINDOW))))
          .whenComplete((receipt, error) -> {
            complain(error);
            pushed.complete(null);
          })));
      if (order.reviewed() != null) {
        events.add(new Event(order.reviewed(), () -> lives.add(pushed.thenCompose(done -> queue.cancel(order.id()))
            .handle((outcome, error) -> {
              complain(error);
              if (outcome == CancelOutcome.CANCELLED) {
                cancelled.incrementAndGet();
                open.arriveAndDeregister();
              } else { // it is being rated, or has been: the review replaces the rating
                replaced.incrementAndGet();
              }
              return null;
            }))));
      }
    }
    events.sort(Comparator.comparing(Event::at));
    for (var event : events) {
      Thread.sleep(until(event.at()).toMillis());
      event.happens().run();
    }
    CompletableFuture.allOf(lives.toArray(CompletableFuture[]::new)).join();
    open.arriveAndAwaitAdvance();
    worker.stop();
    working.join();
    var pushed = orders.size() - reviewed;
    System.out.printf("%d orders: %d rated by their buyers before the delivery, %d pushed; of those %d cancelled by a review, "
        + "%d rated automatically, %d of them reviewed later%n",
        orders.size(), reviewed, pushed, cancelled.get(), rated.size(), replaced.get());
    if (rated.size() + cancelled.get() != pushed) {
      complaints.add("the books do not balance");
    }
    if (!complaints.isEmpty()) {
      throw new IllegalStateException(complaints.toString());
    }
    System.out.println("the books balance");
  }

  private void complain(Throwable error) {
    if (error != null) {
      complaints.add(error.toString());
    }
  }
}
