// Redisson's RDelayedQueue and RBlockingQueue as dueq-bench drives them. README.md says how they are configured.

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

final class RedissonDriver extends Driver {
    /** How many the consumer takes at once. */
    private static final int TAKE = 100;

    private final RedissonClient client;
    private RBlockingQueue<String> ready;
    private RDelayedQueue<String> delayed;
    private Worker worker;

    private RedissonDriver(String server) {
        // It has no call for many: so many single ones at a time.
        super(1, 256, 1);
        Config config = new Config();
        // The payload as it is, as everywhere here, and not serialised by Kryo.
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(server.replaceAll("/$", ""));
        client = Redisson.create(config);
    }

    public static void main(String[] arguments) throws Exception {
        new RedissonDriver(arguments[0]).run();
    }

    @Override
    void open(String name) {
        ready = client.getBlockingQueue(name);
        delayed = client.getDelayedQueue(ready);
    }

    /** Due at once: straight into the queue that is consumed, as one would do. */
    @Override
    CompletableFuture<?> push(Item item) {
        if (item.dueMs() == 0) {
            return ready.offerAsync(item.payload()).toCompletableFuture();
        }
        long delay = Math.max(0, item.dueMs() - System.currentTimeMillis());
        return delayed.offerAsync(item.payload(), delay, TimeUnit.MILLISECONDS).toCompletableFuture();
    }

    @Override
    CompletableFuture<?> pushMany(List<Item> items) {
        return push(items.get(0));
    }

    @Override
    void work(int handlers, Sink sink) {
        worker = new Worker(ready, sink);
    }

    /** What it took is gone from Redis: there is nothing to acknowledge. */
    @Override
    boolean acked(long n) {
        return true;
    }

    @Override
    void close() throws InterruptedException {
        if (worker != null) {
            worker.ended = true;
            worker.join();
            worker = null;
        }
        delayed.destroy();
    }

    private static final class Worker extends Thread {
        private final RBlockingQueue<String> queue;
        private final Sink sink;
        private volatile boolean ended;

        Worker(RBlockingQueue<String> queue, Sink sink) {
            this.queue = queue;
            this.sink = sink;
            start();
        }

        @Override
        public void run() {
            try {
                while (!ended) {
                    String first = queue.poll(200, TimeUnit.MILLISECONDS);
                    if (first == null) {
                        continue;
                    }
                    sink.start(first);
                    List<String> more = queue.poll(TAKE);
                    while (!more.isEmpty()) {
                        more.forEach(sink::start);
                        more = more.size() < TAKE ? List.of() : queue.poll(TAKE);
                    }
                }
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
