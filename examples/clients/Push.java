// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: java -cp 'jedis.jar:...' Push.java QUEUE ID DELAY_MS PAYLOAD [OPTION...]
// (PAYLOAD -: standard input, any bytes)
// An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
// Needs Java 17, Jedis (redis.clients:jedis) and, once on the server that REDIS_URL names, `dueq functions load`.
// A library has this and workers, too: io.dueq:dueq-client, https://github.com/dueq/dueq/tree/main/clients/java
import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.zip.CRC32;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisDataException;

public class Push {
    static final String[] KEYS = "scheduled ready leases claims messages attrs dead recent nodes meta".split(" ");

    /** The partitions of a queue: the epoch, their tags before and after a change, and the map itself. */
    record Partitions(String epoch, List<String> before, List<String> after, String text) {}

    static final Partitions ONE = new Partitions("", List.of("-"), List.of("-"), "");
    static final Map<String, Partitions> maps = new HashMap<>(); // by queue

    static List<byte[]> keysOf(String queue, String tag) {
        List<byte[]> keys = new ArrayList<>(); // all ten, in this order
        for (String key : KEYS) {
            keys.add(bytes("dueq:{" + queue + (tag.equals("-") ? "" : "/" + tag) + "}:" + key));
        }
        return keys;
    }

    /** Null while the queue is being deleted. */
    static Partitions readMap(Jedis client, String queue) {
        byte[] map = client.hget(keysOf(queue, "-").get(9), bytes("map"));
        if (map == null) {
            return ONE;
        }
        String text = new String(map, UTF_8);
        String[] parts = text.split("\\|", -1); // epoch, tags before, tags after a change
        if (parts.length > 3) {
            throw new IllegalStateException(
                    "the queue moves between this server and " + parts[3] + ", or has moved there");
        }
        List<String> before = List.of(parts[1].split(" ")), after = List.of(parts[2].split(" "));
        return parts[2].isEmpty() ? null : new Partitions(parts[0], before, after, text);
    }

    /** The tag of the partition of the id. */
    static String tagOf(List<String> tags, byte[] id) {
        String text = new String(id, ISO_8859_1); // one char for each byte
        int open = text.indexOf('{');
        int close = open < 0 ? -1 : text.indexOf('}', open);
        CRC32 crc = new CRC32();
        crc.update(close > open + 1 ? Arrays.copyOfRange(id, open + 1, close) : id);
        return tags.get((int) (crc.getValue() * tags.size() >> 32));
    }

    /** Calls a function at one partition, and returns the result. */
    static String send(Jedis client, List<byte[]> keys, String epoch, String function, byte[]... args) {
        List<byte[]> argv = new ArrayList<>(List.of(args));
        argv.add(0, bytes(epoch));
        List<?> reply = (List<?>) client.fcall(bytes(function), keys, argv);
        return new String((byte[]) ((List<?>) reply.get(1)).get(0), UTF_8);
    }

    /** The result of a function for the id. Waits for up to ten seconds while the message or the map changes. */
    static String call(Jedis client, String queue, byte[] id, String function, byte[]... args) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (true) {
            Partitions known = maps.getOrDefault(queue, ONE);
            String tag = tagOf(known.before(), id), newTag = tagOf(known.after(), id), result = "AWAY";
            String probe = "p" + known.epoch(), change = known == ONE ? "" : "m" + known.epoch();
            boolean behind = false;
            try {
                // While the partitions change, a probe asks the old one: it creates nothing. AWAY: the new one decides.
                // A result behind AWAY is that of the call unless the new one has the message.
                if (!tag.equals(newTag)) {
                    result = send(client, keysOf(queue, tag), probe, function, args);
                }
                if (result.startsWith("AWAY")) {
                    tag = newTag;
                    String remembered = result.substring(4).trim();
                    result = send(client, keysOf(queue, tag), remembered.isEmpty() ? change : probe, function, args);
                    result = result.startsWith("AWAY") ? remembered : result;
                }
                if (!result.equals("MOVING") || System.nanoTime() > end) {
                    return result;
                }
            } catch (JedisDataException error) {
                behind = error.getMessage().startsWith("BEHIND ");
                boolean remapped = error.getMessage().startsWith("REMAPPED ");
                if (!behind && !remapped || System.nanoTime() > end) {
                    throw error;
                }
            }
            // The partition has another map, and the call did nothing; or the message is on its way to another one.
            Partitions newest = readMap(client, queue);
            if (newest != null && !newest.equals(known)) {
                maps.put(queue, newest);
            } else if (newest != null && behind && known.after().contains(tag)) {
                List<byte[]> forward = List.of(new byte[0], bytes("forward"), bytes(known.text()));
                client.fcall(bytes("dueq_remap"), keysOf(queue, tag), forward);
            } else {
                sleep();
            }
        }
    }

    static void sleep() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** True: stored. False: the id was pushed before. */
    static boolean push(Jedis client, String queue, byte[] id, long delayMs, byte[] payload, String options) {
        // If the connection breaks, the same call may be sent again. The script recognises the repetition for ten seconds.
        List<String> time = client.time();
        long us = (Long.parseLong(time.get(0)) + 10) * 1_000_000 + Long.parseLong(time.get(1));
        String nonce = UUID.randomUUID().toString().replace("-", "");
        String attempt = String.format("%d.%03d %s", us / 1000, us % 1000, nonce);
        String result =
                call(client, queue, id, "dueq_push", bytes(attempt), id, bytes("+" + delayMs), payload, bytes(options));
        if (result.equals("CREATED")) {
            return true;
        }
        if (result.equals("FINISHED") || result.startsWith("EXISTS")) {
            return false;
        }
        throw new IllegalStateException(result);
    }

    static byte[] bytes(Object value) {
        return value.toString().getBytes(UTF_8);
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 4) {
            System.err.println("usage: QUEUE ID DELAY_MS PAYLOAD [OPTION...]");
            System.exit(2);
        }
        String queue = args[0], id = args[1], delayMs = args[2], payload = args[3];
        String options = String.join(" ", List.of(args).subList(4, args.length));
        byte[] content = payload.equals("-") ? System.in.readAllBytes() : bytes(payload);
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379/");
        try (Jedis client = new Jedis(url)) {
            boolean created = push(client, queue, bytes(id), Long.parseLong(delayMs), content, options);
            System.out.println(created ? "created " + id : id + " was pushed before");
        } catch (RuntimeException error) {
            System.err.println("Push.java: " + error.getMessage());
            System.exit(1);
        }
    }
}
