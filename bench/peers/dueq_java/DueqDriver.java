// clients/java as dueq-bench drives it. README.md says how it is configured.

import io.dueq.Client;
import io.dueq.Message;
import io.dueq.Queue;
import io.dueq.Worker;
import io.dueq.model.Receipt;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;

final class DueqDriver extends Driver {
    private final String server;
    private final RedisCommands<String, String> redis;
    private Client client;
    private Queue queue;
    private Worker worker;
    private CompletableFuture<Void> running;

    private DueqDriver(String server) {
        super(1_000, 4, 512);
        this.server = server;
        redis = RedisClient.create(server).connect().sync();
    }

    public static void main(String[] arguments) throws Exception {
        new DueqDriver(arguments[0]).run();
    }

    @Override
    void open(String name) {
        client = Client.connect(server);
        queue = client.queue(name);
    }

    private static Message made(Item item) {
        Message message = Message.of(item.payload());
        return item.dueMs() == 0 ? message : message.due(Instant.ofEpochMilli(item.dueMs()));
    }

    private static void created(Receipt receipt) {
        if (!receipt.created()) {
            throw new IllegalStateException("a push answered " + receipt);
        }
    }

    @Override
    CompletableFuture<?> push(Item item) {
        return queue.push(made(item)).thenAccept(DueqDriver::created);
    }

    @Override
    CompletableFuture<?> pushMany(List<Item> items) {
        return queue.pushMany(items.stream().map(DueqDriver::made).toList())
            .thenAccept(all -> all.forEach(one -> created(one.receipt().orElseThrow())));
    }

    @Override
    void work(int handlers, Sink sink) {
        worker = client.worker();
        worker.queue(queue, delivery -> {
            sink.start(delivery.text());
            return null;
        }, new Worker.Options().concurrency(handlers));
        running = CompletableFuture.runAsync(worker::run);
    }

    @Override
    boolean acked(long n) {
        String acked = redis.hget("dueq:{" + queue.name() + "}:meta", "acked");
        return acked != null && Long.parseLong(acked) >= n;
    }

    @Override
    void close() {
        if (worker != null) {
            worker.stop();
            running.join();
            worker = null;
        }
        client.close();
    }
}
