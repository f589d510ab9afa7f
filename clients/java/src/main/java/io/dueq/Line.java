package io.dueq;

import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;

/** One connection of Lettuce. It sends what it is given once, in order, and does not connect again. */
final class Line {
  private final StatefulConnection<byte[], byte[]> connection;
  private final AtomicBoolean isClosed = new AtomicBoolean();

  Line(StatefulConnection<byte[], byte[]> connection) {
    this.connection = connection;
  }

  boolean isLost() {
    return !connection.isOpen();
  }

  void close() {
    if (isClosed.compareAndSet(false, true)) {
      connection.closeAsync();
    }
  }

  CompletionStage<Object> send(List<?> words) {
    var arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
    for (var word : words.subList(1, words.size())) {
      arguments.add(word instanceof byte[] bytes ? bytes : word.toString().getBytes(StandardCharsets.UTF_8));
    }
    var command = new AsyncCommand<>(new Command<>(new Keyword(words.get(0).toString()), new Raw(), arguments));
    connection.dispatch(command);
    return command;
  }

  private record Keyword(String word) implements ProtocolKeyword {
    @Override
    public byte[] getBytes() {
      return word.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String toString() {
      return word;
    }
  }

  /** A reply as it is: a number, bytes, null, or a list of those. */
  private static final class Raw extends CommandOutput<byte[], byte[], Object> {
    private final Deque<List<Object>> open = new ArrayDeque<>();

    Raw() {
      super(ByteArrayCodec.INSTANCE, null);
    }

    private void add(Object value) {
      if (open.isEmpty()) {
        output = value;
      } else {
        open.peek().add(value);
      }
    }

    @Override
    public void set(long integer) {
      add(integer);
    }

    @Override
    public void set(ByteBuffer bytes) {
      byte[] copy = null;
      if (bytes != null) {
        copy = new byte[bytes.remaining()];
        bytes.get(copy);
      }
      add(copy);
    }

    @Override
    public void multi(int count) {
      if (count < 0) {
        add(null);
        return;
      }
      var list = new ArrayList<Object>(count);
      add(list);
      open.push(list);
    }

    @Override
    public void complete(int depth) {
      if (depth > 0 && depth < open.size()) {
        open.pop();
      }
    }
  }
}
