package io.dueq;

import static io.dueq.DueqException.invalid;

import io.dueq.DueqException.Applied;
import io.dueq.DueqException.Kind;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiFunction;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/** One server: a connection that all calls share, and one for each call that blocks. Its methods block. */
final class Server {
  /** How long one command may take before its connection is closed. */
  private static final long RESPONSE_LIMIT = TimeUnit.SECONDS.toNanos(5);
  /** By how much a wait that is late tells that this process did not run. */
  private static final long STOPPED = TimeUnit.MILLISECONDS.toNanos(500);
  private static final String PLACEHOLDER = "\0" + "-".repeat(70);
  /** A full server accepts a write after one that needs no memory, within one script. */
  private static final String TOUCH = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then "
      + "redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end";

  final String address;
  private final RedisClient redis;
  private final Supplier<RedisURI> locate;
  private final ReentrantLock opening = new ReentrantLock();
  private final Set<Line> lines = new HashSet<>();
  private final Deque<Line> idle = new ArrayDeque<>();
  private final Set<String> canWait = ConcurrentHashMap.newKeySet();
  private volatile Line shared;
  private volatile Map<String, String> facts;
  private volatile boolean isClosed;

  /** `locate` says where the server is now: a master that Sentinels watch moves. */
  Server(RedisClient redis, String address, Supplier<RedisURI> locate) {
    this.redis = redis;
    this.address = address;
    this.locate = locate;
  }

  /** Ends the calls that block under it. */
  static final class Stop {
    private final Set<Line> blocked = new HashSet<>();
    private boolean isStopped;

    synchronized boolean isStopped() {
      return isStopped;
    }

    synchronized void stop() {
      isStopped = true;
      blocked.forEach(Line::close);
    }

    private synchronized void begin(Line line) {
      blocked.add(line);
      if (isStopped) {
        line.close();
      }
    }

    private synchronized void end(Line line) {
      blocked.remove(line);
    }
  }

  Object call(List<?> words, boolean asking) {
    var line = line();
    check();
    return exchange(line, words, asking, RESPONSE_LIMIT);
  }

  Object run(String verb, List<String> keys, List<?> arguments, boolean asking) {
    return run(verb, keys, arguments, asking, this::call);
  }

  /** Calls a script by its hash; loads it where the server does not have it. */
  private static Object run(String verb, List<String> keys, List<?> arguments, boolean asking,
      BiFunction<List<?>, Boolean, Object> send) {
    var script = Scripts.of(verb);
    var words = new ArrayList<Object>(3 + keys.size() + arguments.size());
    words.addAll(List.of("EVALSHA", script.sha(), keys.size()));
    words.addAll(keys);
    words.addAll(arguments);
    try {
      return send.apply(words, asking);
    } catch (DueqException error) {
      if (!"NOSCRIPT".equals(error.code())) {
        throw error;
      }
    }
    try {
      send.apply(List.of("SCRIPT", "LOAD", script.text()), false);
    } catch (DueqException error) {
      throw error.as(Applied.NO);
    }
    return send.apply(words, asking);
  }

  /** The reply of a script, and what has not confirmed it, or the error of the wait; null if nothing is missing. */
  record Confirmed(Object reply, DueqException missing) {}

  /** Calls a script and waits on the same connection: another one may lead to another master. */
  Confirmed runDurably(String verb, List<String> keys, List<?> arguments, Durability durability, boolean asking) {
    return alone(new Stop(), line -> {
      if (!canWait.contains(durability.command())) {
        probe(line, durability);
      }
      var raw = run(verb, keys, arguments, asking, (words, ask) -> exchange(line, words, ask, RESPONSE_LIMIT));
      if (Replies.readReply(verb, raw, 0, 0).header().incarnation().isEmpty()) {
        return new Confirmed(raw, null); // without a queue there is nothing to lose
      }
      try {
        // WAIT counts the writes of its own connection, and a script that finds its work done writes nothing.
        exchange(line, List.of("EVAL", TOUCH, 1, keys.get(5), PLACEHOLDER), asking, RESPONSE_LIMIT);
        var limit = RESPONSE_LIMIT + TimeUnit.MILLISECONDS.toNanos(durability.timeoutMs());
        var shortfall = durability.shortfall(exchange(line, durability.words(false), false, limit));
        return new Confirmed(raw, shortfall == null ? null : DueqException.unconfirmed(verb, shortfall));
      } catch (DueqException error) {
        var isMoved = "MOVED".equals(error.code()) || "ASK".equals(error.code());
        return new Confirmed(raw, !isMoved ? error : DueqException
            .unavailable("the keys are at another server now: " + error.getMessage()).as(Applied.UNKNOWN));
      }
    });
  }

  /** Refuses a server that cannot wait, before any change. */
  private void probe(Line line, Durability durability) {
    try {
      exchange(line, durability.words(true));
    } catch (DueqException error) {
      var why = Durability.unfit(error.detail());
      throw why == null ? error.as(Applied.NO)
          : new DueqException(Kind.UNSUPPORTED, Applied.NO, "redis at " + address + " is not fit: " + why);
    }
    canWait.add(durability.command());
  }

  /** A call that blocks, on a connection of its own, which is closed by the stop. */
  Object block(List<?> words, Stop stop, boolean asking) {
    return alone(stop, line -> exchange(line, words, asking, RESPONSE_LIMIT));
  }

  private <T> T alone(Stop stop, Function<Line, T> work) {
    check();
    Line line;
    synchronized (lines) {
      line = idle.poll();
    }
    if (line == null || line.isLost()) {
      line = open();
    }
    stop.begin(line);
    try {
      return work.apply(line);
    } finally {
      stop.end(line);
      synchronized (lines) {
        if (line.isLost()) {
          lines.remove(line);
        } else {
          idle.push(line);
        }
      }
    }
  }

  /** Passes on what is published to a shard channel, and null once it is subscribed, while it is the channel's server. */
  void listen(String channel, Consumer<String> heard, Stop stop, BooleanSupplier isHere) {
    var connection = opened(redis.connectPubSubAsync(ByteArrayCodec.INSTANCE, locate.get()));
    var line = new Line(connection);
    var ended = new CountDownLatch(1);
    connection.addListener(new RedisConnectionStateListener() {
      @Override
      public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
        ended.countDown();
      }
    });
    connection.addListener(new RedisPubSubAdapter<byte[], byte[]>() {
      @Override
      public void smessage(byte[] from, byte[] notice) {
        heard.accept(new String(notice, StandardCharsets.UTF_8));
      }

      @Override
      public void sunsubscribed(byte[] from, long count) { // the slot has moved to another server
        ended.countDown();
      }
    });
    stop.begin(line);
    try {
      waited(line, connection.async().ssubscribe(channel.getBytes(StandardCharsets.UTF_8)), RESPONSE_LIMIT);
      heard.accept(null);
      while (!stop.isStopped() && !line.isLost() && isHere.getAsBoolean()) {
        if (ended.await(1, TimeUnit.SECONDS)) {
          break;
        }
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    } finally {
      stop.end(line);
      line.close();
    }
  }

  /** The fields of INFO, empty without a right to it. Refuses a server that is too old, or that may evict a queue. */
  Map<String, String> check() {
    var known = facts;
    if (known != null) {
      return known;
    }
    var text = "";
    try {
      text = Replies.text(exchange(line(), List.of("INFO")));
    } catch (DueqException error) {
      // Only INFO may have been applied, and the call itself was not sent.
      if (error.applied() == Applied.UNKNOWN || error.isOutage() || error.code() == null) {
        throw error.as(Applied.NO);
      }
      if (error.kind() == Kind.DENIED && !"NOPERM".equals(error.code())) {
        throw error;
      }
    }
    var found = new HashMap<String, String>();
    text.lines().forEach(line -> found.put(Replies.before(line, ":"), Replies.after(line, ":").strip()));
    var version = found.getOrDefault("valkey_version", found.getOrDefault("redis_version", "7.0"));
    var policy = found.getOrDefault("maxmemory_policy", "");
    var major = Replies.before(version, ".");
    var why = major.matches("[0-6]") ? "it has version " + version + ", and dueq needs Redis 7.0 or Valkey 7.2 or newer"
        : policy.startsWith("allkeys") ? "its maxmemory-policy " + policy + " evicts messages: set noeviction" : null;
    if (why != null) {
      throw new DueqException(Kind.UNSUPPORTED, Applied.NO, "redis at " + address + " is refused: " + why);
    }
    facts = found;
    return found;
  }

  private Line line() {
    var line = shared;
    if (line != null && !line.isLost()) {
      return line;
    }
    opening.lock();
    try {
      if (shared == null || shared.isLost()) {
        shared = open();
      }
      return shared;
    } finally {
      opening.unlock();
    }
  }

  private Line open() {
    if (isClosed) {
      throw invalid("the client is closed: make a new one");
    }
    var line = new Line(opened(redis.connectAsync(ByteArrayCodec.INSTANCE, locate.get())));
    synchronized (lines) {
      lines.stream().filter(Line::isLost).forEach(Line::close);
      lines.removeIf(Line::isLost);
      lines.add(line);
    }
    if (isClosed) {
      line.close();
    }
    return line;
  }

  private <T> T opened(CompletionStage<T> opening) {
    var future = opening.toCompletableFuture();
    try {
      return future.get(RESPONSE_LIMIT, TimeUnit.NANOSECONDS);
    } catch (ExecutionException error) {
      throw unreached(error.getCause());
    } catch (TimeoutException error) {
      throw unreached(error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw unreached(error);
    }
  }

  /** The error of a connection that could not be opened: nothing was sent. */
  private DueqException unreached(Throwable thrown) {
    var last = thrown;
    for (var error = thrown; error != null; error = error.getCause()) {
      if (error instanceof DueqException ours) {
        return ours.as(Applied.NO);
      }
      if (error instanceof RedisCommandExecutionException refused) {
        return DueqException.ofReply(address, refused.getMessage()).as(Applied.NO);
      }
      last = error; // Lettuce and Netty repeat the text of what they wrap: the innermost says why
    }
    var text = last.getMessage() == null ? last.toString() : last.getMessage();
    return new DueqException(Kind.UNAVAILABLE, Applied.NO, "cannot reach redis at " + address + ": " + text, null, "",
        null, thrown);
  }

  private Object exchange(Line line, List<?> words) {
    return exchange(line, words, false, RESPONSE_LIMIT);
  }

  private Object exchange(Line line, List<?> words, boolean asking, long limit) {
    if (line.isLost()) {
      throw DueqException.unavailable("the connection to redis at " + address + " was lost");
    }
    try {
      if (asking) {
        line.send(List.of("ASKING")); // the call behind it fails too
      }
      return waited(line, line.send(words), limit);
    } catch (DueqException error) {
      if ("READONLY".equals(error.code())) {
        line.close(); // the next connection asks where the master is
      }
      throw error;
    }
  }

  /** The reply of a command that was sent. A line that does not answer is closed. */
  private <T> T waited(Line line, CompletionStage<T> reply, long limit) {
    var future = reply.toCompletableFuture();
    for (;;) {
      var began = Clock.now();
      try {
        return future.get(limit, TimeUnit.NANOSECONDS);
      } catch (TimeoutException error) {
        // This process did not run, and its server perhaps neither, as when their machine sleeps.
        if (Clock.now() < began + limit + STOPPED) {
          line.close();
          throw new DueqException(Kind.TIMEOUT, Applied.UNKNOWN, "redis at " + address + ": no answer within "
              + TimeUnit.NANOSECONDS.toSeconds(limit) + " s");
        }
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw lost(error);
      } catch (CancellationException error) {
        throw lost(error);
      } catch (ExecutionException error) {
        if (error.getCause() instanceof RedisCommandExecutionException refused) {
          throw DueqException.ofReply(address, refused.getMessage());
        }
        throw lost(error.getCause());
      }
    }
  }

  private DueqException lost(Throwable error) {
    return new DueqException(Kind.UNAVAILABLE, Applied.UNKNOWN, "the connection to redis at " + address + " was lost: "
        + error.getMessage(), null, "", null, error);
  }

  /** From now on no connection is opened. The shutdown of the Redis client closes all. */
  void close() {
    isClosed = true;
  }
}
