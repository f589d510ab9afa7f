package io.dueq;

import static io.dueq.DueqException.invalid;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.regex.Pattern;
import java.util.zip.CRC32;

/** The keys of a partition, the map of a queue's partitions, and the partition of an id. */
final class Routes {
  static final String HOME = "-";
  private static final List<String> SUFFIXES =
      List.of("scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta");
  private static final Pattern BAD_IN_NAME = Pattern.compile("[\\x00-\\x1f\\x7f/{}]");
  private static final Pattern TAG = Pattern.compile("-|0|[1-9][0-9]{0,8}");
  private static final Pattern EPOCH = Pattern.compile("[1-9][0-9]{0,15}");
  private static final long MAX_EPOCH = (1L << 53) - 1;

  private Routes() {}

  /** The ten keys of one partition, in the order of KEYS; its wake-up list, and the channel of its notices. */
  record Keys(List<String> ten, String meta, String wake, String notice) {
    static Keys of(String queue, String tag) {
      var bytes = queue.getBytes(StandardCharsets.UTF_8).length;
      if (bytes < 1 || bytes > 128 || BAD_IN_NAME.matcher(queue).find()) {
        throw invalid("queue name " + Message.quoted(queue) + " of " + bytes
            + " bytes: a name has 1 to 128 bytes, no control characters and none of / { }");
      }
      var base = "dueq:{" + (tag.equals(HOME) ? queue : queue + "/" + tag) + "}:";
      var ten = SUFFIXES.stream().map(suffix -> base + suffix).toList();
      return new Keys(ten, base + "meta", base + "wake", base + "notice");
    }
  }

  /** Where a call goes: the tag of a partition, and the fence {@code m7}, or {@code p7} of a probe; empty without a map. */
  record Step(String tag, String fence) {}

  /** The tags of a queue's partitions, before and after a change. `next` is empty while the queue is being deleted. */
  record PartitionMap(long epoch, List<String> old, List<String> next, String text) {
    /** Reads {@code EPOCH|OLD TAGS|NEW TAGS}. */
    static PartitionMap parse(String queue, String text) {
      var parts = text.split("\\|", -1);
      if (parts.length != 3) {
        throw wrong(queue, text, "not three parts");
      }
      if (!EPOCH.matcher(parts[0]).matches() || Long.parseLong(parts[0]) > MAX_EPOCH) {
        throw wrong(queue, text, "no epoch");
      }
      var lists = new ArrayList<List<String>>();
      for (var part : parts[1].isEmpty() ? List.of("x", parts[2]) : List.of(parts[1], parts[2])) {
        var tags = part.isEmpty() ? List.<String>of() : List.of(part.split(" ", -1));
        if (!tags.stream().allMatch(tag -> TAG.matcher(tag).matches())) {
          throw wrong(queue, text, "no partition 0, or a tag that is neither - nor a number up to 999999999");
        }
        if (!tags.isEmpty() && !tags.get(0).equals(HOME)) {
          throw wrong(queue, text, "no partition 0");
        }
        if (tags.size() > 256 || new HashSet<>(tags).size() != tags.size()) {
          throw wrong(queue, text, "a tag twice, or more than 256 partitions");
        }
        lists.add(tags);
      }
      return new PartitionMap(Long.parseLong(parts[0]), lists.get(0), lists.get(1), text);
    }

    private static DueqException wrong(String queue, String text, String why) {
      return new DueqException(DueqException.Kind.SERVER, DueqException.Applied.NO, "the map of the partitions of queue "
          + queue + " cannot be read: " + why + " in \"" + text.substring(0, Math.min(text.length(), 200))
          + "\" (`dueq doctor " + queue + "`)");
    }

    /** The calls that name this id, in their order: while the partitions change, first a probe at the old one. */
    List<Step> steps(byte[] id) {
      if (next.isEmpty()) {
        return List.of();
      }
      var from = old.get(indexOf(id, old.size()));
      var last = new Step(next.get(indexOf(id, next.size())), "m" + epoch);
      return from.equals(last.tag) ? List.of(last) : List.of(new Step(from, "p" + epoch), last);
    }

    /** Whether the id belongs to this partition by both lists. */
    boolean keeps(byte[] id, String tag) {
      return old.get(indexOf(id, old.size())).equals(tag)
          && (next.isEmpty() || next.get(indexOf(id, next.size())).equals(tag));
    }

    boolean isSettled() {
      return old.equals(next);
    }

    /** Every partition that may have messages. */
    List<String> tags() {
      var all = new LinkedHashSet<>(old);
      all.addAll(next);
      return List.copyOf(all);
    }
  }

  /** The part of an id that decides: the bytes between its first brace and the next closing one, else all of it. */
  private static byte[] part(byte[] id) {
    for (var start = 0; start < id.length; start += 1) {
      if (id[start] == '{') {
        for (var end = start + 1; end < id.length; end += 1) {
          if (id[end] == '}') {
            return end > start + 1 ? Arrays.copyOfRange(id, start + 1, end) : id;
          }
        }
        return id;
      }
    }
    return id;
  }

  static long crc(byte[] bytes) {
    var crc = new CRC32();
    crc.update(bytes);
    return crc.getValue();
  }

  /** The index of the partition that holds the id. */
  static int indexOf(byte[] id, int partitions) {
    return (int) (crc(part(id)) * partitions >>> 32);
  }

  /** An id for a follow-up message that belongs to the partition of its parent. */
  static byte[] idOfFollowUp(byte[] parent, int number) {
    var isWhole = part(parent).length == parent.length;
    var tail = ((isWhole ? "}/" : "/") + number).getBytes(StandardCharsets.UTF_8);
    var id = new byte[(isWhole ? 1 : 0) + parent.length + tail.length];
    id[0] = '{';
    System.arraycopy(parent, 0, id, isWhole ? 1 : 0, parent.length);
    System.arraycopy(tail, 0, id, id.length - tail.length, tail.length);
    return id;
  }

  /** The slot of a key: the CRC-16 of what is between its first braces, which all keys of dueq have. */
  static int slotOf(String key) {
    var crc = 0;
    for (var one : key.substring(key.indexOf('{') + 1, key.indexOf('}')).getBytes(StandardCharsets.UTF_8)) {
      crc ^= (one & 0xff) << 8;
      for (var bit = 0; bit < 8; bit += 1) {
        crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
      }
    }
    return crc & 0x3fff;
  }
}
