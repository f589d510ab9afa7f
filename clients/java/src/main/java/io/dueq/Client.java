package io.dueq;

import static io.dueq.DueqException.invalid;

import io.lettuce.core.SslOptions;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** The servers of a URL. It has a few connections, and is shared by all threads. */
public final class Client implements AutoCloseable {
  private final Servers servers;
  private final Map<String, Router> routers = new ConcurrentHashMap<>();
  private volatile boolean isClosed;

  private Client(Servers servers) {
    this.servers = servers;
  }

  /**
   * A client of {@code redis://}, {@code rediss://} or {@code unix://}, {@code redis+cluster://HOST:PORT,...} or
   * {@code redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE]}. Nothing is sent before the first call.
   */
  public static Client connect(String url) {
    return connect(url, null);
  }

  /** The same with certificates and more, for {@code rediss://}. */
  public static Client connect(String url, SslOptions ssl) {
    return new Client(Servers.of(url, ssl));
  }

  /** The queue of this name: 1 to 128 bytes, no control characters and none of {@code / { }}. */
  public Queue queue(String name) {
    return new Queue(this, routers.computeIfAbsent(name, one -> new Router(servers, one)), null);
  }

  /** A new worker, which handles the messages of the queues that it is given. */
  public Worker worker() {
    return new Worker(this);
  }

  void check() {
    if (isClosed) {
      throw invalid("the client is closed: make a new one");
    }
  }

  /** Waits for the calls that are under way, and closes the connections. */
  @Override
  public void close() {
    isClosed = true;
    CompletableFuture.allOf(routers.values().stream().map(Router::drain).toArray(CompletableFuture[]::new)).join();
    servers.close();
  }
}
