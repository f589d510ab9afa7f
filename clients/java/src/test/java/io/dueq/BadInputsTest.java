package io.dueq;

import static io.dueq.InBatches.inBatches;
import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.dueq.Message.OnConflict;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Bad input has the same kind and code in each language, and a text that says what to do. */
@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class BadInputsTest extends WorkerTest {
  private static void refused(Kind kind, String code, String hint, Executable call) {
    var error = DueqException.of(assertThrows(Exception.class, call, hint));
    assertEquals(Arrays.asList(kind, Applied.NO, code), Arrays.asList(error.kind(), error.applied(), error.code()),
        error.toString());
    assertTrue(error.getMessage().contains(hint), hint + ": " + error.getMessage());
    assertFalse(error.getMessage().matches(".*(secret|wrong@).*"), "a password: " + error.getMessage());
  }

  private static void refused(String hint, Executable call) {
    refused(Kind.INVALID_INPUT, null, hint, call);
  }

  @ParameterizedTest(name = "{0}")
  @CsvSource({
      "a wrong type, DEL dueq:{q}:scheduled; SET dueq:{q}:scheduled x,, SERVER, WRONGTYPE, `dueq doctor QUEUE`",
      "a layout from the future, HSET dueq:{q}:meta layout 99,, UNSUPPORTED, LAYOUT, install a newer version",
      "no right,, poor:secret@, DENIED, NOPERM, `dueq acl ROLE QUEUE`",
      "a wrong password,, poor:wrong@, DENIED, WRONGPASS, give user and password in the URL",
      "no password, ACL SETUSER default resetpass >secret,, DENIED, NOAUTH, give user and password in the URL",
      "an evicting server, CONFIG SET maxmemory-policy allkeys-lru,, UNSUPPORTED,, set noeviction",
      "a full server, CONFIG SET maxmemory 1,, FULL, OOM, raise maxmemory"})
  void aRefusalHasItsCodeAndSaysWhatToDo(String name, String commands, String user, Kind kind, String code, String hint) {
    queue.blocking().push("first");
    server.command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+info");
    for (var command : commands == null ? new String[0] : commands.split("; ")) {
      server.command((Object[]) command.split(" "));
    }
    try (var other = Client.connect(server.url().replace("//", "//" + (user == null ? "" : user)))) {
      refused(kind, code, hint, () -> other.queue("q").blocking().push(message("a", 0)));
    }
  }

  @Test
  void aServerThatIsTooOldIsRefused() throws Exception {
    try (var listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      Threads.run(() -> {
        try {
          for (;;) {
            var socket = listener.accept();
            Threads.run(() -> answerAsRedis6(socket));
          }
        } catch (IOException error) {
          // closed
        }
      });
      try (var old = Client.connect("redis://127.0.0.1:" + listener.getLocalPort() + "/")) {
        refused(Kind.UNSUPPORTED, null, "version 6.2.14, and dueq needs Redis 7.0", () -> old.queue("q").blocking().push(""));
      }
    }
  }

  private static void answerAsRedis6(Socket socket) {
    var info = "redis_version:6.2.14\r\n";
    try (socket; var input = new DataInputStream(socket.getInputStream())) {
      for (;;) {
        var words = new ArrayList<String>();
        for (var left = number(input); left > 0; left -= 1) {
          words.add(new String(input.readNBytes(number(input) + 2), StandardCharsets.UTF_8).strip());
        }
        var answer = words.get(0).equals("INFO") ? "$" + info.length() + "\r\n" + info + "\r\n" : "+OK\r\n";
        socket.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
      }
    } catch (IOException error) {
      // the client has closed it
    }
  }

  private static int number(DataInputStream input) throws IOException {
    var text = new StringBuilder();
    for (var one = input.readByte(); one != '\n'; one = input.readByte()) {
      text.append((char) one);
    }
    return Integer.parseInt(text.substring(1).strip());
  }

  @Test
  void aBadUrlIsRefusedWithoutItsPassword() {
    Map.of("http://host/", "it must be redis, rediss or unix",
        "redis+ring://host/", "it must be redis, rediss or unix",
        "redis://:secret@host:port/", "HOST:PORT",
        "redis://:secret@host/zero", "a database by its number",
        "redis://:secret@a,b/", "names one host, or begins with redis+cluster://",
        "redis+cluster://:secret@a:b", "HOST:PORT",
        "redis+sentinel://a:26379", "/SERVICE[/DATABASE]",
        "redis://%zz:secret@a:1", "percent-encoded").forEach((url, hint) -> refused(hint, () -> Client.connect(url)));
  }

  /** No server is asked: the URL names none. */
  @Test
  void badValuesAreRefusedBeforeTheyAreSent() {
    try (var nowhere = Client.connect("redis://127.0.0.1:1/")) {
      var q = nowhere.queue("q").blocking();
      var id = "an id has 1 to 200 bytes, none of them a control byte";
      var years = "it must be 0 to 3155760000000 (100 years)";
      var centuries = Duration.ofDays(200 * 365);
      var second = Duration.ofSeconds(1);
      for (var bad : List.of("", "\0", "a\r\n", "x".repeat(201), "\u00e9".repeat(101))) {
        refused(id, () -> q.push(Message.of("").id(bad)));
        refused(id, () -> q.get(bad));
        refused(id, () -> q.cancel(bad));
      }
      for (var bad : List.of("", "a/b", "{q}", "a\nb", "x".repeat(129))) {
        refused("queue name", () -> nowhere.queue(bad));
      }
      refused(years, () -> q.push(Message.of("").delay(centuries)));
      refused(years, () -> q.reschedule("a", centuries));
      refused(years, () -> Retry.fixed(centuries));
      refused(years, () -> Settlement.again(centuries));
      refused(years, () -> Settlement.retry("", centuries));
      refused("a time is 0 ms to 100 years", () -> q.push(Message.of("").delay(Duration.ofMillis(-1))));
      refused("a time is 0 ms to 100 years", () -> q.push(Message.of("").delay(Duration.ofSeconds(Long.MAX_VALUE))));
      refused("a moment is from 1970 to the year 33000", () -> q.push(Message.of("").due(Instant.ofEpochMilli(-1))));
      refused("a moment is from 1970 to the year 33000", () -> q.reschedule("a", Instant.MAX));
      refused("a delay or a due time, not both", () -> q.push(Message.of("").delay(second).due(Instant.now())));
      refused("maxAttempts is 0, it must be a whole number from 1", () -> q.push(Message.of("").maxAttempts(0)));
      refused("cost is -1, it must be a whole number from 1", () -> q.push(Message.of("").cost(-1)));
      refused("window is 0, it must be a whole number from 1", () -> q.push(Message.of("").window(Duration.ZERO)));
      refused("not a W3C traceparent", () -> q.push(Message.of("").traceParent("00-x")));
      refused("revive needs onConflict REPLACE or NEXT", () -> q.push(Message.of("").revive(true)));
      refused("maxWait needs an onConflict other than KEEP", () -> q.push(Message.of("").maxWait(second)));
      refused("the delay is longer than maxWait",
          () -> q.push(Message.of("").delay(second.multipliedBy(2)).maxWait(second).onConflict(OnConflict.REPLACE)));
      refused("set expiresAfter or expiresAt too", () -> q.push(Message.of("").onExpire(Message.OnExpire.DROP)));
      refused("expiresAfter or expiresAt, not both",
          () -> q.push(Message.of("").expiresAfter(second).expiresAt(Instant.now())));
      refused("waits for nothing", () -> Durability.replicated(0, second));
      refused("it must be a whole number from 1 to 60000", () -> Durability.replicated(1, Duration.ofHours(1)));
      refused("ackAnd takes 1 to 100 messages", () -> Settlement.ackAnd(List.of()));
      refused("the first must be above zero and not above the last", () -> Retry.exponential(second, Duration.ZERO));
      refused("make several sets of them", () -> nowhere.queue("q").schedules("billing")
          .apply(Collections.nCopies(25, Schedule.every("a", second))).join());
      refused("a moment is from 1970", () -> Schedule.every("a", second).start(Instant.ofEpochMilli(-1)));
      refused(Kind.INVALID_INPUT, "TOO_LARGE", "no queue takes more than 16777216",
          () -> q.push(Message.of(new byte[16 * 1024 * 1024 + 1])));
    }
  }

  @Test
  void aWorkerThatCannotRunSaysWhy() {
    Worker.Handler nothing = delivery -> null;
    var worker = client.worker().queue(queue, nothing);
    refused("has queue q already", () -> worker.queue(queue, nothing));
    refused("no queue", client.worker()::run);
    refused("it must be a whole number from 1 to 10000", () -> options().concurrency(0));
    refused("lease is 90000000, it must be a whole number from 1 to", () -> options().lease(Duration.ofHours(25)));
    refused("timeLimit is 0, it must be a whole number from 1", () -> options().timeLimit(Duration.ZERO));
    refused("a retry policy is null: give one", () -> options().retry(null));
    refused("needs a handler: a function of a delivery", () -> client.worker().queue(queue, (Worker.Handler) null));
    refused("a handler is null: give one", () -> inBatches(2, Duration.ZERO, null));
    refused("an executor is null: give one", () -> client.worker().executor(null));
    refused("it must be a whole number from 1 to 10000", () -> inBatches(0, Duration.ZERO, batch -> null));
    refused("a third of the lease",
        () -> client.worker().queue(queue, inBatches(2, Duration.ofSeconds(11), batch -> null)));
    try (var other = Client.connect(server.url())) {
      refused("of another client", () -> client.worker().queue(other.queue("q"), nothing));
    }
    worker.stop();
    worker.run();
    refused("make a new one", worker::run);
    refused("give it all queues before", () -> worker.queue(client.queue("p"), nothing));
  }

  @Test
  void aClosedClientRefusesCalls() {
    var closed = Client.connect(server.url());
    var q = closed.queue("q");
    q.blocking().push("");
    var worker = closed.worker().queue(q, delivery -> null);
    closed.close();
    closed.close();
    for (var call : List.<Executable>of(() -> q.blocking().push(""), () -> q.blocking().get("a"),
        () -> q.listSchedules().join(), () -> closed.queue("p").blocking().cancel("a"), worker::run)) {
      refused("the client is closed: make a new one", call);
    }
    assertTrue(q.pushMany(List.of(Message.of(""))).join().get(0).error().orElseThrow().getMessage().contains("closed"));
  }

  /** What breaks whoever asks for its text. */
  private static final class Broken extends RuntimeException {
    private static final long serialVersionUID = 1;

    @Override
    public String toString() {
      throw new AssertionError("no text");
    }
  }

  private static final class Quiet extends Exception {
    private static final long serialVersionUID = 1;
  }

  @Test
  void aHandlerThatFailsInAnyWayIsRetriedWithWhatItSaid() throws Exception {
    Map<String, Worker.Handler> ways = new LinkedHashMap<>();
    ways.put("java.lang.IllegalStateException: a\0b\r\n\ud83e\udd80",
        delivery -> { throw new IllegalStateException("a\0b\r\n\ud83e\udd80"); });
    ways.put("a " + Broken.class.getName() + " without a text", delivery -> { throw new Broken(); });
    ways.put(Quiet.class.getName(), delivery -> { throw new Quiet(); });
    ways.put("java.lang.StackOverflowError", delivery -> { throw new StackOverflowError(); });
    ways.put("java.lang.InterruptedException: by itself", delivery -> { throw new InterruptedException("by itself"); });
    ways.put("java.util.concurrent.CancellationException", delivery -> { throw new CancellationException(); });
    ways.put("java.util.concurrent.CompletionException: ", delivery -> { CompletableFuture.failedFuture(new Quiet()).join(); return null; });
    ways.put("java.lang.NoClassDefFoundError: gone", delivery -> { throw new NoClassDefFoundError("gone"); });
    var names = List.copyOf(ways.keySet());
    for (var at = 0; at < names.size(); at += 1) {
      queue.blocking().push(message("way" + at, 0));
    }
    run(delivery -> ways.get(names.get(Integer.parseInt(delivery.id().substring(3)))).handle(delivery),
        options().retry(Retry.fixed(Duration.ofMinutes(1))));
    until(() -> meta("retried") == names.size());
    for (var at = 0; at < names.size(); at += 1) {
      var stored = queue.blocking().get("way" + at).orElseThrow();
      assertEquals(1, stored.failures());
      assertTrue(stored.error().startsWith(names.get(at)), names.get(at) + ": " + stored.error());
    }
  }

  @Test
  void anExecutorThatRefusesLetsTheMessageBeRetried() throws Exception {
    queue.blocking().push(message("a", 0));
    var worker = client.worker().executor(work -> {
      throw new java.util.concurrent.RejectedExecutionException("full");
    }).queue(queue, delivery -> null, options().retry(Retry.fixed(Duration.ofMinutes(1))));
    run(worker, Duration.ofSeconds(1));
    until(() -> meta("retried") == 1);
    assertTrue(queue.blocking().get("a").orElseThrow().error().contains("RejectedExecutionException: full"));
  }

  /** The clock of the machine may be an hour off: it names ids, and nothing is due, late or lost by it. */
  @Test
  void nothingIsDecidedByTheClockOfTheMachine() throws Exception {
    var reads = new TreeMap<String, Integer>();
    try (var files = Files.walk(Path.of("src/main/java"))) {
      for (var file : files.filter(path -> path.toString().endsWith(".java")).toList()) {
        var count = Files.readString(file).split("currentTimeMillis\\(|Instant\\.now|new Date\\(|Clock\\.system", -1).length - 1;
        if (count > 0) {
          reads.put(file.getFileName().toString(), count);
        }
      }
    }
    assertEquals(Map.of("Ids.java", 1), reads);
  }
}
