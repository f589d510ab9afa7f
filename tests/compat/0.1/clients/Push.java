// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: java -cp 'jedis.jar:...' Push.java QUEUE ID DELAY_MS PAYLOAD   (PAYLOAD -: standard input,
// any bytes)
// Needs Java 17, Jedis (redis.clients:jedis) and, once on the server that REDIS_URL names, `dueq functions load`.
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import redis.clients.jedis.Jedis;

public class Push {
    static final String[] KEYS = "scheduled ready leases claims messages attrs dead recent nodes meta".split(" ");

    /** True: stored. False: the id was pushed before. */
    static boolean push(Jedis client, String queue, byte[] id, long delayMs, byte[] payload) {
        List<byte[]> keys = new ArrayList<>(); // all ten, in this order
        for (String key : KEYS) {
            keys.add(("dueq:{" + queue + "}:" + key).getBytes(UTF_8));
        }
        // If the connection breaks, the same call may be sent again. The script recognises the repetition for ten seconds.
        List<String> time = client.time();
        long us = (Long.parseLong(time.get(0)) + 10) * 1_000_000 + Long.parseLong(time.get(1));
        String nonce = UUID.randomUUID().toString().replace("-", "");
        String attempt = String.format("%d.%03d %s", us / 1000, us % 1000, nonce);
        byte[] empty = {};
        List<byte[]> args = List.of(empty, bytes(attempt), id, bytes("+" + delayMs), payload, empty);
        List<?> reply = (List<?>) client.fcall("dueq_push".getBytes(UTF_8), keys, args);
        String result = new String((byte[]) ((List<?>) reply.get(1)).get(0), UTF_8);
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
        if (args.length != 4) {
            System.err.println("usage: QUEUE ID DELAY_MS PAYLOAD");
            System.exit(2);
        }
        String queue = args[0], id = args[1], delayMs = args[2], payload = args[3];
        byte[] content = payload.equals("-") ? System.in.readAllBytes() : bytes(payload);
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379/");
        try (Jedis client = new Jedis(url)) {
            boolean created = push(client, queue, bytes(id), Long.parseLong(delayMs), content);
            System.out.println(created ? "created " + id : id + " was pushed before");
        } catch (RuntimeException error) {
            System.err.println("Push.java: " + error.getMessage());
            System.exit(1);
        }
    }
}
