// Redisson's RDelayedQueue and RBlockingQueue as dueq-bench drives them. README.md says how they are configured.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public final class Driver {
    private static final int PAYLOAD_BYTES = 100;
    private static final int DIGITS = 13;
    /** How many calls of offerAsync are under way at once when pushing in bulk: it has no call for many. */
    private static final int IN_FLIGHT = 256;
    /** How many the consumer takes at once, and for how long it blocks. */
    private static final int TAKE = 100;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final RedissonClient client;
    private final ExecutorService pushers = Executors.newFixedThreadPool(64);
    private RBlockingQueue<String> ready;
    private RDelayedQueue<String> delayed;
    private volatile Worker worker;
    private final AtomicLong taken = new AtomicLong();
    private final List<Long> lateUs = new ArrayList<>();

    private Driver(String server) {
        Config config = new Config();
        // The payload as it is, as everywhere here, and not serialised by Kryo.
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(server.replaceAll("/$", ""));
        client = Redisson.create(config);
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode reply;
            try {
                reply = driver.answer(JSON.readTree(line));
            } catch (Exception error) {
                reply = JSON.createObjectNode().put("error", error.toString());
            }
            System.out.println(reply);
        }
        driver.client.shutdown();
        System.exit(0);
    }

    private ObjectNode answer(JsonNode request) throws Exception {
        ObjectNode reply = JSON.createObjectNode().put("from_us", unixUs()).put("n", request.path("n").asLong());
        switch (request.get("do").asText()) {
            case "open" -> open(request.get("queue").asText());
            case "push" -> push(request.get("n").asLong(), request.get("concurrency").asInt(), request.get("due"));
            case "bulk" -> bulk(request.get("n").asLong(), request.get("batch").asInt(), request.get("due"));
            case "pace" -> pace(request.get("n").asLong(), request.get("per_s").asLong(), request.get("delay_ms").asLong());
            case "work" -> worker = new Worker(ready);
            case "drain" -> drain(request, reply);
            case "close" -> close();
            default -> throw new IllegalArgumentException("not a request: " + request);
        }
        return reply.put("to_us", unixUs());
    }

    private void open(String name) {
        ready = client.getBlockingQueue(name);
        delayed = client.getDelayedQueue(ready);
        taken.set(0);
        synchronized (lateUs) {
            lateUs.clear();
        }
    }

    private void push(long n, int concurrency, JsonNode due) throws Exception {
        List<CompletableFuture<Void>> tasks = new ArrayList<>();
        for (int task = 0; task < concurrency; task++) {
            long first = task;
            tasks.add(CompletableFuture.runAsync(() -> {
                for (long i = first; i < n; i += concurrency) {
                    offer(dueMs(due, i, n)).toCompletableFuture().join();
                }
            }, pushers));
        }
        for (CompletableFuture<Void> task : tasks) {
            task.get();
        }
    }

    private void bulk(long n, int batch, JsonNode due) throws Exception {
        inFlight(n, batch == 0 ? IN_FLIGHT : batch, i -> { }, i -> dueMs(due, i, n));
    }

    private void pace(long n, long perS, long delayMs) throws Exception {
        long start = unixUs();
        inFlight(n, Integer.MAX_VALUE, i -> {
            long wait = start + i * 1_000_000 / perS - unixUs();
            if (wait > 0) {
                try {
                    TimeUnit.MICROSECONDS.sleep(wait);
                } catch (InterruptedException stop) {
                    throw new IllegalStateException(stop);
                }
            }
        }, i -> unixUs() / 1_000 + delayMs + i * 7_919 % 97);
    }

    private interface DueOf {
        long of(long i);
    }

    private void inFlight(long n, int limit, LongConsumer before, DueOf due) throws Exception {
        Semaphore places = new Semaphore(limit);
        CompletableFuture<Throwable> failed = new CompletableFuture<>();
        for (long i = 0; i < n; i++) {
            before.accept(i);
            places.acquire();
            offer(due.of(i)).whenComplete((done, error) -> {
                if (error != null) {
                    failed.complete(error);
                }
                places.release();
            });
        }
        places.acquire(limit);
        if (failed.isDone()) {
            throw new IllegalStateException(failed.get());
        }
    }

    /** 0: due at once, and so straight into the queue that is consumed, as one would do. */
    private CompletableFuture<?> offer(long dueMs) {
        if (dueMs == 0) {
            return ready.offerAsync(payload(unixUs() / 1_000)).toCompletableFuture();
        }
        long delay = Math.max(0, dueMs - System.currentTimeMillis());
        return delayed.offerAsync(payload(dueMs), delay, TimeUnit.MILLISECONDS).toCompletableFuture();
    }

    private static long dueMs(JsonNode due, long i, long n) {
        long at = due.path("at_ms").asLong();
        if (at == 0) {
            return 0;
        }
        long place = switch (due.path("order").asText("forward")) {
            case "backward" -> n - 1 - i;
            case "shuffled" -> i * 7_368_787 % n;
            default -> i;
        };
        return at + place * due.path("spread_ms").asLong() / n;
    }

    private void drain(JsonNode request, ObjectNode reply) throws InterruptedException {
        long n = request.get("n").asLong();
        long limit = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.get("limit_ms").asLong());
        synchronized (taken) {
            while (taken.get() < n && System.nanoTime() < limit) {
                taken.wait(100);
            }
        }
        reply.put("n", taken.get());
        if (request.get("late").asBoolean()) {
            ArrayNode late = reply.putArray("late_us");
            synchronized (lateUs) {
                lateUs.forEach(late::add);
                lateUs.clear();
            }
        }
    }

    private void close() throws InterruptedException {
        if (worker != null) {
            worker.end();
            worker = null;
        }
        delayed.destroy();
    }

    /** Takes and forgets: what it took is gone from Redis. There is nothing to acknowledge. */
    private final class Worker extends Thread {
        private final RBlockingQueue<String> queue;
        private volatile boolean ended;

        Worker(RBlockingQueue<String> queue) {
            this.queue = queue;
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
                    handle(first);
                    List<String> more = queue.poll(TAKE);
                    while (!more.isEmpty()) {
                        more.forEach(this::handle);
                        more = more.size() < TAKE ? List.of() : queue.poll(TAKE);
                    }
                    synchronized (taken) {
                        taken.notifyAll();
                    }
                }
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }

        private void handle(String payload) {
            long late = unixUs() - Long.parseLong(payload.substring(0, DIGITS)) * 1_000;
            synchronized (lateUs) {
                lateUs.add(late);
            }
            taken.incrementAndGet();
        }

        void end() throws InterruptedException {
            ended = true;
            join();
        }
    }

    private static String payload(long dueMs) {
        String digits = String.format("%0" + DIGITS + "d", dueMs);
        return digits + "x".repeat(PAYLOAD_BYTES - DIGITS);
    }

    private static long unixUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }
}
