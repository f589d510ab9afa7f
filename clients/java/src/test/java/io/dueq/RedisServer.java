package io.dueq;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.ByteArrayCodec;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** A server of its own, which keeps its data through a kill. */
final class RedisServer implements AutoCloseable {
  static final Path ROOT = Path.of("../..").toAbsolutePath().normalize();
  private static final String PROGRAM = System.getenv("DUEQ_TEST_SERVERS").split(":")[0];
  private static final RedisClient CLIENT = RedisClient.create();

  static {
    // A line that waits for a reconnection would let the next command wait, too.
    CLIENT.setOptions(ClientOptions.builder().autoReconnect(false).build());
  }

  final int port;
  private final List<String> options;
  private final Path folder;
  private Process process;
  private Line line;

  private RedisServer(List<String> options) throws Exception {
    this.port = freePort();
    this.options = options;
    this.folder = Files.createTempDirectory("dueq-java-");
    start();
  }

  static RedisServer of(String... options) throws Exception {
    // With everysec a busy disk delays the writes, and a kill loses calls that were answered.
    var all = new ArrayList<>(List.of("--save", "", "--appendonly", "yes", "--appendfsync", "always"));
    all.addAll(List.of(options));
    return new RedisServer(all);
  }

  static RedisServer sentinel(Path file) throws Exception {
    return new RedisServer(List.of(file.toString(), "--sentinel"));
  }

  /** A port whose number + 10,000 is a port too: servers of a cluster use both. */
  static int freePort() throws IOException {
    for (;;) {
      try (var socket = new ServerSocket(0)) {
        if (socket.getLocalPort() < 55_000) {
          return socket.getLocalPort();
        }
      }
    }
  }

  String url() {
    return "redis://127.0.0.1:" + port + "/";
  }

  void start() throws Exception {
    var words = new ArrayList<>(List.of(PROGRAM));
    words.addAll(options); // the file of a Sentinel comes first
    words.addAll(List.of("--port", String.valueOf(port), "--dir", folder.toString()));
    process = new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    until(() -> {
      try {
        return command("PING") != null;
      } catch (RuntimeException error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
          cause = cause.getCause();
        }
        return String.valueOf(cause.getMessage()).contains("NOAUTH");
      }
    });
  }

  /** A command by a connection of its own. */
  synchronized Object command(Object... words) {
    try {
      if (line == null || line.isLost()) {
        var uri = RedisURI.create("127.0.0.1", port);
        line = new Line(CLIENT.connectAsync(ByteArrayCodec.INSTANCE, uri).get(60, TimeUnit.SECONDS));
      }
      return line.send(List.of(words)).toCompletableFuture().get(60, TimeUnit.SECONDS);
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  /** The reply as text, also that of an error. */
  String reply(Object... words) {
    try {
      return Replies.text(command(words));
    } catch (IllegalStateException error) {
      return error.getMessage();
    }
  }

  void signal(String name) throws Exception {
    new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
  }

  void kill() throws Exception {
    process.destroyForcibly().waitFor();
    if (line != null) {
      line.close();
    }
  }

  /** How many calls of a command the server has served. */
  long calls(String command) {
    var found = Pattern.compile("cmdstat_" + command + ":calls=(\\d+)").matcher(Replies.text(command("INFO", "commandstats")));
    return found.find() ? Long.parseLong(found.group(1)) : 0;
  }

  long meta(String queue, String field) {
    var found = command("HGET", "dueq:{" + queue + "}:meta", field);
    return found == null ? 0 : Long.parseLong(Replies.text(found));
  }

  static void until(Callable<Boolean> holds) throws Exception {
    for (var end = System.nanoTime() + TimeUnit.SECONDS.toNanos(100); !holds.call(); Thread.sleep(5)) {
      if (System.nanoTime() > end) {
        throw new AssertionError("the condition does not become true");
      }
    }
  }

  @Override
  public void close() throws Exception {
    signal("CONT");
    kill();
    try (var all = Files.walk(folder)) {
      all.sorted(Comparator.reverseOrder()).forEach(path -> {
        try {
          Files.deleteIfExists(path);
        } catch (IOException error) {
          throw new UncheckedIOException(error);
        }
      });
    }
  }
}
