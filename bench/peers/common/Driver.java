// What the drivers in Java have in common: the line protocol of bench/README.md, the payloads, the counting.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.LongUnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** A system; each overrides what is its own. */
abstract class Driver {
    private static final int PAYLOAD_BYTES = 100;
    private static final int DIGITS = 13;
    private static final String PADDING = "x".repeat(PAYLOAD_BYTES - DIGITS);

    /** A message; 0 is due at once. Its payload begins with its due time. */
    record Item(long dueMs, String payload) {
        static Item due(long dueMs) {
            // A time of this century has as many digits.
            return new Item(dueMs, (dueMs == 0 ? System.currentTimeMillis() : dueMs) + PADDING);
        }
    }

    /** Where handlers report. */
    static final class Sink {
        private final AtomicLong started = new AtomicLong();
        private List<Long> lateUs = new ArrayList<>();

        void start(String payload) {
            long late = unixUs() - Long.parseLong(payload.substring(0, DIGITS)) * 1_000;
            synchronized (this) {
                lateUs.add(late);
            }
            started.incrementAndGet();
        }

        private synchronized List<Long> taken() {
            List<Long> taken = lateUs;
            lateUs = new ArrayList<>();
            return taken;
        }
    }

    /** With what the system is fastest. A batch of 1: it has no call for many. */
    final int batch;
    final int inFlight;
    final int concurrency;
    private Sink sink;

    Driver(int batch, int inFlight, int concurrency) {
        this.batch = batch;
        this.inFlight = inFlight;
        this.concurrency = concurrency;
    }

    abstract void open(String name) throws Exception;

    abstract CompletableFuture<?> push(Item item);

    abstract CompletableFuture<?> pushMany(List<Item> items);

    abstract void work(int handlers, Sink sink) throws Exception;

    /** Whether n messages are acknowledged; all their handlers have started before. */
    abstract boolean acked(long n) throws Exception;

    abstract void close() throws Exception;

    /** Answers requests until the input ends. */
    final void run() throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String reply;
            try {
                reply = answer(line);
            } catch (Exception error) {
                reply = "{\"error\":\"" + error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}";
            }
            System.out.println(reply);
        }
        System.exit(0);
    }

    /** A request is one flat line: each name occurs once. */
    private static String word(String request, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?(\\w+)").matcher(request);
        return found.find() ? found.group(1) : "0";
    }

    private static long number(String request, String name) {
        return Long.parseLong(word(request, name));
    }

    private String answer(String request) throws Exception {
        long from = unixUs();
        long n = number(request, "n");
        long handled = n;
        LongUnaryOperator dues = dues(request, n);
        String late = "";
        switch (word(request, "do")) {
            case "open" -> {
                sink = new Sink();
                open(word(request, "queue"));
            }
            case "push" -> calls(n, (int) number(request, "concurrency"), i -> { },
                i -> push(Item.due(dues.applyAsLong(i))));
            case "bulk" -> bulk(n, (int) number(request, "batch"), dues);
            case "pace" -> pace(n, number(request, "per_s"), number(request, "delay_ms"));
            case "work" -> {
                int handlers = (int) number(request, "concurrency");
                work(handlers == 0 ? concurrency : handlers, sink);
            }
            case "drain" -> {
                long limit = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(number(request, "limit_ms"));
                while ((sink.started.get() < n || !acked(n)) && System.nanoTime() < limit) {
                    Thread.sleep(1);
                }
                handled = sink.started.get();
                late = word(request, "late").equals("true")
                    ? sink.taken().stream().map(String::valueOf).collect(Collectors.joining(",")) : "";
            }
            case "close" -> close();
            default -> throw new IllegalArgumentException("not a request: " + request);
        }
        return String.format("{\"from_us\":%d,\"to_us\":%d,\"n\":%d,\"late_us\":[%s]}", from, unixUs(), handled, late);
    }

    private void bulk(long n, int asked, LongUnaryOperator dues) throws Exception {
        boolean isAsked = asked != 0 && batch > 1;
        long size = isAsked ? asked : batch;
        calls((n + size - 1) / size, isAsked ? 1 : inFlight, i -> { }, call -> pushMany(
            LongStream.range(call * size, Math.min(n, (call + 1) * size)).mapToObj(i -> Item.due(dues.applyAsLong(i))).toList()));
    }

    private void pace(long n, long perS, long delayMs) throws Exception {
        long start = unixUs();
        calls(n, Integer.MAX_VALUE, i -> {
            long wait = start + i * 1_000_000 / perS - unixUs();
            if (wait > 0) {
                try {
                    TimeUnit.MICROSECONDS.sleep(wait);
                } catch (InterruptedException stop) {
                    throw new IllegalStateException(stop);
                }
            }
        }, i -> push(Item.due(unixUs() / 1_000 + delayMs + i * 7_919 % 97)));
    }

    /** So many calls, at most `limit` of them at a time. */
    private static void calls(long n, int limit, LongConsumer before, LongFunction<CompletableFuture<?>> call) throws Exception {
        Semaphore places = new Semaphore(limit);
        CompletableFuture<Throwable> failed = new CompletableFuture<>();
        for (long i = 0; i < n; i++) {
            before.accept(i);
            places.acquire();
            call.apply(i).whenComplete((done, error) -> {
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

    /** When each of n messages is due; 0 is at once. */
    private static LongUnaryOperator dues(String request, long n) {
        long at = number(request, "at_ms");
        long spread = number(request, "spread_ms");
        String order = word(request, "order");
        return i -> {
            if (at == 0) {
                return 0;
            }
            long place = switch (order) {
                case "backward" -> n - 1 - i;
                case "shuffled" -> i * 7_368_787 % n;
                default -> i;
            };
            return at + place * spread / n;
        };
    }

    private static long unixUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }
}
