import io.dueq.Client;
import io.dueq.Delivery;
import io.dueq.Message;
import io.dueq.Queue;
import io.dueq.Settlement;
import io.dueq.Worker;
import io.dueq.model.Receipt;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.regex.Pattern;

/** usage: Program push QUEUE FILE | Program work QUEUE     (REDIS_URL names the server) */
final class Program {
  private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": ?\"([^\"]*)\"");
  private static final int SHARE = 500;
  private static final FileOutputStream RECORD = new FileOutputStream(FileDescriptor.out);

  private Program() {}

  public static void main(String[] words) throws Exception {
    try (var client = Client.connect(System.getenv("REDIS_URL"))) {
      var queue = client.queue(words[1]);
      if (words[0].equals("push")) {
        push(queue, Path.of(words[2]));
      } else {
        var lease = Duration.ofMillis(Long.parseLong(System.getenv("LEASE_MS")));
        client.worker().queue(queue, Program::record, new Worker.Options().concurrency(32).lease(lease)).run();
      }
    }
  }

  private static void push(Queue queue, Path file) throws Exception {
    var messages = Files.readAllLines(file).stream().map(Program::message).toList();
    for (var at = 0; at < messages.size(); at += SHARE) {
      for (var pushed : queue.blocking().pushMany(messages.subList(at, Math.min(at + SHARE, messages.size())))) {
        if (!pushed.receipt().map(Receipt::created).orElse(false)) {
          throw new IllegalStateException(pushed.toString());
        }
      }
    }
  }

  private static Message message(String line) {
    Map<String, String> fields = new HashMap<>();
    FIELD.matcher(line).results().forEach(found -> fields.put(found.group(1), found.group(2)));
    var decoder = Base64.getDecoder();
    return Message.of(decoder.decode(fields.get("payload_base64"))).id(decoder.decode(fields.get("id_base64")))
        .due(Instant.ofEpochMilli(Long.parseLong(fields.get("at"))));
  }

  private static Settlement record(Delivery delivery) throws Exception {
    var now = System.currentTimeMillis();
    var hash = MessageDigest.getInstance("SHA-1").digest(delivery.payload());
    var hex = HexFormat.of();
    // One write for each run, which a kill does not tear apart.
    RECORD.write((now + " " + hex.formatHex(delivery.idBytes()) + " " + delivery.attempt() + " "
        + hex.formatHex(hash) + "\n").getBytes(StandardCharsets.US_ASCII));
    Thread.sleep(20);
    return Settlement.ack();
  }
}
