package io.dueq;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;

/** Passes bytes to a server. `lose` cuts the next connection whose call matches, once the server has replied. */
final class Proxy implements AutoCloseable {
  private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  private final int target;
  private volatile String match;
  private volatile boolean isHeld;
  private volatile CountDownLatch lost = new CountDownLatch(1);

  Proxy(RedisServer target) throws IOException {
    this.target = target.port;
    Threads.run(this::accept);
  }

  String url() {
    return "redis://127.0.0.1:" + listener.getLocalPort() + "/";
  }

  /** With `hold` new connections are refused until `resume`, so that a test can act before the repetition. */
  void lose(String text, boolean hold) {
    lost = new CountDownLatch(1);
    isHeld = hold;
    match = text;
  }

  void awaitLost() throws InterruptedException {
    lost.await();
  }

  void resume() {
    isHeld = false;
  }

  private void accept() {
    try {
      for (;;) {
        var socket = listener.accept();
        if (isHeld && lost.getCount() == 0) {
          socket.close();
          continue;
        }
        var server = new Socket(InetAddress.getLoopbackAddress(), target);
        var cut = new boolean[1];
        Threads.run(() -> pass(socket, server, cut, true));
        Threads.run(() -> pass(server, socket, cut, false));
      }
    } catch (IOException error) {
      // closed
    }
  }

  private void pass(Socket from, Socket to, boolean[] cut, boolean isCall) {
    var buffer = new byte[1 << 16];
    try (from; to) {
      for (var count = from.getInputStream().read(buffer); count >= 0; count = from.getInputStream().read(buffer)) {
        var wanted = match;
        if (isCall && wanted != null && new String(buffer, 0, count, StandardCharsets.ISO_8859_1).contains(wanted)) {
          match = null;
          cut[0] = true;
        }
        if (!isCall && cut[0]) {
          lost.countDown();
          return;
        }
        to.getOutputStream().write(buffer, 0, count);
      }
    } catch (IOException error) {
      // the other end is gone
    }
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
