package io.dueq;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Ids of messages that their producer does not name: no two are the same, and those made later sort later. */
final class Ids {
  private static final byte[] DIGITS =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".getBytes(StandardCharsets.US_ASCII);
  private static final int HALF = 11; // digits of base 62 for 64 bits

  private static long ms;
  private static long high;
  private static long low;

  private Ids() {}

  /** 22 characters: the time and 80 random bits, which are drawn for each millisecond and counted up within one. */
  static synchronized byte[] next() {
    var now = System.currentTimeMillis();
    low += 1;
    if (now > ms || low == 0) {
      ms = Math.max(now, ms + 1);
      var random = ByteBuffer.wrap(Partition.random(10));
      high = ms << 16 | random.getShort() & 0xffff;
      low = random.getLong();
    }
    var id = new byte[2 * HALF];
    write(high, id, HALF);
    write(low, id, 2 * HALF);
    return id;
  }

  private static void write(long bits, byte[] id, int end) {
    for (var at = end - 1; at >= end - HALF; at -= 1) {
      id[at] = DIGITS[(int) Long.remainderUnsigned(bits, 62)];
      bits = Long.divideUnsigned(bits, 62);
    }
  }
}
