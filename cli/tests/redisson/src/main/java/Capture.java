import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.protocol.ScoredEntry;
import org.redisson.codec.JsonJacksonCodec;
import org.redisson.codec.SerializationCodec;
import org.redisson.config.Config;

/** Fills delayed queues by Redisson and prints what Redis holds then, an element a line: type, key, score (or -), hex. */
public class Capture {
    public static class Order implements Serializable {
        public long id = 42;
        public String buyer = "Zoë 😀";
        public BigDecimal price = new BigDecimal("19.90");
        public Date paid = new Date(1_700_000_000_000L);
        public UUID key = new UUID(1, 2);
        public int[] parts = {1, 2, 3};
        public String[] tags = {"gift", "für morgen"};
        public List<Object> lines = new ArrayList<>(List.of("a", 7L, Map.of("sku", "x-1")));
        public Map<String, Object> more = new LinkedHashMap<>(Map.of("zip", 4051));
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(args[0]).setConnectionMinimumIdleSize(1).setConnectionPoolSize(8);
        RedissonClient redisson = Redisson.create(config);
        try {
            List<Object> texts = List.of("order:42", "same", "same", "für morgen 😀\n", "", "{\"a\": 1}", "tail");
            List<Object> objects = List.of("order:42", "same", "same", "für morgen 😀\n", "", new Order(), 7L, 2.5, true,
                new ArrayList<>(List.of(1, 2L)));
            fill(redisson, "text", StringCodec.INSTANCE, texts);
            fill(redisson, "json", new JsonJacksonCodec(), objects);
            fill(redisson, "default", config.getCodec(), objects); // Redisson has set it: Kryo5Codec
            fill(redisson, "java", new SerializationCodec(), objects);
            fill(redisson, "{tagged}:text", StringCodec.INSTANCE, texts);
        } finally {
            redisson.shutdown();
        }
    }

    static void fill(RedissonClient redisson, String name, Codec codec, List<Object> values) throws Exception {
        if (codec == null) {
            throw new IllegalStateException("no codec for " + name);
        }
        RBlockingQueue<Object> due = redisson.getBlockingQueue(name, codec);
        RDelayedQueue<Object> delayed = redisson.getDelayedQueue(due);
        // Three elements are due now, so that Redisson moves them to the destination. Of the others, half are due in 30
        // seconds, half in fifty years.
        for (Object value : values.subList(0, 3)) {
            delayed.offer(value, 0, TimeUnit.MILLISECONDS);
        }
        while (due.size() < 3) {
            Thread.sleep(20);
        }
        for (Object value : values) {
            delayed.offer(value, 30, TimeUnit.SECONDS);
            delayed.offer(value, 18_262, TimeUnit.DAYS);
        }
        String inBraces = name.contains("{") ? name : "{" + name + "}";
        HexFormat hex = HexFormat.of();
        String set = "redisson_delay_queue_timeout:" + inBraces;
        for (ScoredEntry<byte[]> entry : redisson.<byte[]>getScoredSortedSet(set, ByteArrayCodec.INSTANCE).entryRange(0, -1)) {
            System.out.println("zset\t" + set + "\t" + entry.getScore().longValue() + "\t" + hex.formatHex(entry.getValue()));
        }
        for (String list : List.of("redisson_delay_queue:" + inBraces, name)) {
            for (byte[] element : redisson.<byte[]>getList(list, ByteArrayCodec.INSTANCE).readAll()) {
                System.out.println("list\t" + list + "\t-\t" + hex.formatHex(element));
            }
        }
    }
}
