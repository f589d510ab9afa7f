package io.dueq;

import static io.dueq.RedisServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.lettuce.core.SslOptions;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(value = 200, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TlsTest {
  @TempDir
  Path folder;

  /** Writes a key and a certificate of 127.0.0.1. */
  private void makeCertificate() throws Exception {
    var made = new ProcessBuilder("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "key", "-out", "cert", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
            .directory(folder.toFile()).redirectErrorStream(true).start();
    var text = new String(made.getInputStream().readAllBytes());
    assertEquals(0, made.waitFor(), text);
  }

  @Test
  void tlsVerifiesTheCertificateOfTheServer() throws Exception {
    assumeTrue(Files.isExecutable(Path.of("/usr/bin/openssl")), "openssl makes the certificate");
    makeCertificate();
    try (var server = RedisServer.of()) {
      var port = RedisServer.freePort();
      assumeTrue("OK".equals(server.reply("CONFIG", "SET", "tls-cert-file", folder.resolve("cert"), "tls-key-file",
          folder.resolve("key"), "tls-auth-clients", "no", "tls-port", port)), "the server is built without TLS");
      var url = "rediss://127.0.0.1:" + port + "/";
      var trusted = SslOptions.builder().trustManager(folder.resolve("cert").toFile()).build();
      try (var client = Client.connect(url, trusted)) {
        var queue = client.queue("q");
        var worker = client.worker().queue(queue, delivery -> null);
        var running = CompletableFuture.runAsync(worker::run, Threads.POOL);
        until(() -> { // on a busy machine the first handshake of a JVM takes longer than a call is repeated
          try {
            queue.blocking().push("x");
            return true;
          } catch (DueqException error) {
            assertTrue(error.isOutage(), error.toString());
            return false;
          }
        });
        until(() -> server.meta("q", "acked") > 0);
        worker.stop();
        running.get(60, TimeUnit.SECONDS);
      }
      try (var client = Client.connect(url)) {
        until(() -> { // a handshake that takes too long says less
          var error = assertThrows(DueqException.class, () -> client.queue("q").blocking().push("x"));
          assertEquals(List.of(Kind.UNAVAILABLE, Applied.NO), List.of(error.kind(), error.applied()), error.toString());
          return error.getMessage().contains("certification path");
        });
      }
    }
  }
}
