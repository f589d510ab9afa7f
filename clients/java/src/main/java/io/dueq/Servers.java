package io.dueq;

import static io.dueq.DueqException.invalid;
import static io.dueq.DueqException.unavailable;

import io.dueq.DueqException.Applied;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.SslOptions;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.regex.Pattern;

/** The servers behind a URL: one, the master that Sentinels name, or the masters of a cluster. Its methods block. */
final class Servers {
  private static final int REDIRECTS = 5;
  private static final Pattern URL = Pattern.compile(
      "(redis|rediss|valkey|valkeys|unix)(?:\\+(cluster|sentinel))?://(?:([^?]*)@)?([^?]*)(?:\\?(.*))?");
  private static final Pattern PLACE = Pattern.compile("(\\[[^\\]]+\\]|[^:\\[\\]]+)(?::(\\d{1,5}))?");

  /** What all connections of a client have. */
  private record Settings(boolean tls, String user, String password, int database) {
    RedisURI at(Place place) {
      var builder = place.path != null ? RedisURI.Builder.socket(place.path)
          : RedisURI.builder().withHost(place.host).withPort(place.port).withSsl(tls);
      if (!user.isEmpty()) {
        builder.withAuthentication(user, password.toCharArray());
      } else if (!password.isEmpty()) {
        builder.withPassword(password.toCharArray());
      }
      return builder.withDatabase(database).withTimeout(Duration.ofSeconds(5)).build();
    }
  }

  /** Where a server is. One with a path is a Unix socket. */
  private record Place(String host, int port, String path) {
    String address() {
      return path != null ? path : host + ":" + port;
    }
  }

  private record Range(long first, long last, Server server) {}

  private final RedisClient redis;
  private final Settings settings;
  /** Of a URL that names one server, which may belong to a cluster, or Sentinels; else null. */
  private final Server one;
  private final boolean mayBelong;
  // The masters of a cluster, by slot; guarded by this.
  private final List<Place> seeds;
  private final Map<Place, Server> known = new HashMap<>();
  private final Map<Integer, Server> moved = new HashMap<>();
  private List<Range> ranges = List.of();
  private boolean isClosed;

  private Servers(RedisClient redis, Settings settings, Server one, boolean mayBelong, List<Place> seeds) {
    this.redis = redis;
    this.settings = settings;
    this.one = one;
    this.mayBelong = mayBelong;
    this.seeds = seeds;
  }

  static Servers of(String url, SslOptions ssl) {
    var match = URL.matcher(url);
    if (!match.matches() || match.group(1).equals("unix") && match.group(2) != null) {
      var scheme = url.contains("://") ? Replies.before(url, "://") : "";
      throw invalid("the scheme of the URL is " + Message.quoted(scheme)
          + ": it must be redis, rediss or unix, or redis+cluster or redis+sentinel");
    }
    var kind = match.group(2) == null ? "" : match.group(2);
    var rest = match.group(4);
    var user = match.group(3) == null ? "" : match.group(3);
    var query = new HashMap<String, String>();
    for (var part : (match.group(5) == null ? "" : match.group(5)).split("&")) {
      query.put(Replies.before(part, "="), decoded(Replies.after(part, "=")));
    }
    var tls = match.group(1).endsWith("ss") || match.group(1).endsWith("ys");
    var name = decoded(Replies.before(user, ":"));
    var password = decoded(Replies.after(user, ":"));
    if (match.group(1).equals("unix")) {
      var place = new Place("", 0, rest);
      var all = new Settings(false, name, password, databaseOf(query.getOrDefault("db", "")));
      var redis = redis(ssl);
      return new Servers(redis, all, new Server(redis, rest, () -> all.at(place)), false, List.of());
    }
    var hosts = Replies.before(rest, "/");
    var path = Replies.after(rest, "/");
    var places = new ArrayList<Place>();
    for (var host : (hosts.isEmpty() ? "localhost" : hosts).split(",", -1)) {
      places.add(placeOf(host, kind.equals("sentinel") ? 26379 : 6379));
    }
    if (kind.equals("cluster")) {
      return new Servers(redis(ssl), new Settings(tls, name, password, 0), null, true, places);
    }
    if (kind.equals("sentinel")) {
      var service = Replies.before(path, "/");
      if (service.isEmpty()) {
        throw invalid("a URL of Sentinels is redis+sentinel://HOST:PORT[,HOST:PORT...]/SERVICE[/DATABASE]");
      }
      var all = new Settings(tls, name, password, databaseOf(Replies.after(path, "/")));
      var own = new Settings(tls, query.getOrDefault("sentinel_user", ""),
          query.getOrDefault("sentinel_password", ""), 0);
      var redis = redis(ssl);
      var master = new Server(redis, "the master of " + service,
          () -> all.at(masterOf(redis, own, places, service)));
      return new Servers(redis, all, master, false, List.of());
    }
    if (places.size() > 1) {
      throw invalid("the URL names one host, or begins with redis+cluster://");
    }
    var place = places.get(0);
    var all = new Settings(tls, name, password, databaseOf(path));
    var redis = redis(ssl);
    return new Servers(redis, all, new Server(redis, place.address(), () -> all.at(place)), true, places);
  }

  /** A client that repeats nothing by itself: a call may be one that must not be repeated. */
  private static RedisClient redis(SslOptions ssl) {
    var options = ClientOptions.builder().autoReconnect(false).protocolVersion(ProtocolVersion.RESP2)
        .pingBeforeActivateConnection(false)
        .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
        .socketOptions(SocketOptions.builder().connectTimeout(Duration.ofSeconds(2)).keepAlive(true).build());
    if (ssl != null) {
      options.sslOptions(ssl);
    }
    var redis = RedisClient.create();
    redis.setOptions(options.build());
    return redis;
  }

  private static String decoded(String text) {
    try {
      return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    } catch (IllegalArgumentException error) {
      throw invalid("the URL cannot be read: user, password and query are percent-encoded");
    }
  }

  private static int databaseOf(String text) {
    if (!text.matches("\\d{0,5}")) {
      throw invalid("the URL names a database by its number, not " + text);
    }
    return text.isEmpty() ? 0 : Integer.parseInt(text);
  }

  private static Place placeOf(String text, int usual) {
    var match = PLACE.matcher(text);
    var port = match.matches() && match.group(2) != null ? Integer.parseInt(match.group(2)) : usual;
    if (!match.matches() || port > 65_535) {
      throw invalid("the URL names a host as HOST:PORT, not " + text);
    }
    return new Place(match.group(1).replaceAll("[\\[\\]]", ""), port, null);
  }

  /** Asks Sentinels in turn for the master of a service. */
  private static Place masterOf(RedisClient redis, Settings own, List<Place> sentinels, String service) {
    var why = "";
    for (var place : sentinels) {
      // A Sentinel is asked once for each connection to its master, so its own is not kept.
      var connecting = redis.connectAsync(ByteArrayCodec.INSTANCE, own.at(place)).toCompletableFuture();
      try {
        var line = new Line(connecting.get(5, TimeUnit.SECONDS));
        try {
          var words = List.of("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service);
          var found = Replies.list(line.send(words).toCompletableFuture().get(5, TimeUnit.SECONDS));
          return new Place(Replies.text(found.get(0)), Integer.parseInt(Replies.text(found.get(1))), null);
        } finally {
          line.close();
        }
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        why = place.address() + ": interrupted";
      } catch (Exception error) {
        why = place.address() + ": " + error.getMessage();
      }
    }
    throw unavailable("no Sentinel names the master of " + service + " (" + why + ")");
  }

  /** Whether the keys may be on several servers. */
  boolean isCluster() {
    return one == null || mayBelong && "1".equals(one.check().get("cluster_enabled"));
  }

  Server ofKey(String key) {
    return isCluster() ? ofSlot(Routes.slotOf(key)) : one;
  }

  Object run(String verb, List<String> keys, List<?> arguments) {
    return follow(keys.get(0), (server, asking) -> server.run(verb, keys, arguments, asking));
  }

  Server.Confirmed runDurably(String verb, List<String> keys, List<?> arguments, Durability durability) {
    return follow(keys.get(0), (server, asking) -> server.runDurably(verb, keys, arguments, durability, asking));
  }

  Object call(String key, List<?> words) {
    return follow(key, (server, asking) -> server.call(words, asking));
  }

  Object block(String key, List<?> words, Server.Stop stop) {
    return follow(key, (server, asking) -> server.block(words, stop, asking));
  }

  /** Sends to the server of a key, and to the one that it names instead. */
  <T> T follow(String key, BiFunction<Server, Boolean, T> send) {
    if (!isCluster()) {
      return send.apply(one, false);
    }
    var server = ofSlot(Routes.slotOf(key));
    var asking = false;
    for (var sent = 0; sent < REDIRECTS; sent += 1) {
      try {
        return send.apply(server, asking);
      } catch (DueqException error) {
        asking = "ASK".equals(error.code());
        if (!asking && !"MOVED".equals(error.code())) {
          if (error.code() == null && error.isOutage()) {
            forget(); // a failover may have made another server the master
          }
          throw error;
        }
        server = redirected(server, error.detail(), asking);
      }
    }
    throw unavailable("the servers of the cluster redirect in a circle");
  }

  private synchronized Server redirected(Server from, String detail, boolean asking) {
    var address = Replies.after(detail, " ");
    var colon = address.lastIndexOf(':');
    var host = colon > 0 ? address.substring(0, colon) : hostOf(from);
    var server = at(new Place(host, Integer.parseInt(address.substring(colon + 1)), null));
    if (!asking) {
      moved.put(Integer.parseInt(Replies.before(detail, " ")), server);
    }
    return server;
  }

  private static String hostOf(Server server) {
    return server.address.substring(0, server.address.lastIndexOf(':'));
  }

  private synchronized Server at(Place place) {
    if (one != null && place.equals(seeds.get(0))) {
      return one;
    }
    return known.computeIfAbsent(place, where -> {
      var server = new Server(redis, where.address(), () -> settings.at(where));
      if (isClosed) {
        server.close();
      }
      return server;
    });
  }

  private Server ofSlot(int slot) {
    var found = knownOf(slot);
    if (found == null) {
      learn();
      found = knownOf(slot);
    }
    if (found == null) {
      forget();
      throw unavailable("no master of the cluster serves slot " + slot);
    }
    return found;
  }

  private synchronized Server knownOf(int slot) {
    var found = moved.get(slot);
    return found != null ? found : ranges.stream().filter(range -> range.first <= slot && slot <= range.last)
        .map(Range::server).findFirst().orElse(null);
  }

  private synchronized void forget() {
    ranges = List.of();
    moved.clear();
  }

  /** Asks the servers in turn for the slots. */
  private void learn() {
    List<Server> candidates;
    synchronized (this) {
      seeds.forEach(this::at);
      candidates = new ArrayList<>(known.values());
      if (one != null) {
        candidates.add(0, one);
      }
    }
    var last = unavailable("the cluster serves no slots");
    for (var server : candidates) {
      try {
        var found = new ArrayList<Range>();
        for (var row : Replies.list(server.call(List.of("CLUSTER", "SLOTS"), false))) {
          var cells = Replies.list(row);
          var master = Replies.list(cells.get(2));
          var host = master.get(0) == null ? "" : Replies.text(master.get(0));
          var place = new Place(host.isEmpty() ? hostOf(server) : host, (int) Replies.integer(master.get(1)), null);
          found.add(new Range(Replies.integer(cells.get(0)), Replies.integer(cells.get(1)), at(place)));
        }
        if (!found.isEmpty()) {
          synchronized (this) {
            ranges = found;
          }
          return;
        }
      } catch (DueqException error) {
        last = error.as(Applied.NO);
      }
    }
    throw last;
  }

  void close() {
    synchronized (this) {
      isClosed = true;
      known.values().forEach(Server::close);
    }
    if (one != null) {
      one.close();
    }
    redis.shutdown(0, 2, TimeUnit.SECONDS);
  }
}
