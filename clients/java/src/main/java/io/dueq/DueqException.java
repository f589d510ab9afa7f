package io.dueq;

import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** The one exception type: what failed, whether to try again, and whether the call took effect. */
public final class DueqException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** What went wrong. */
  public enum Kind {
    /** A name, id, payload, time or option is out of its range, or the client is used wrongly. */
    INVALID_INPUT,
    /** The server cannot be reached, or does not serve calls now. */
    UNAVAILABLE,
    /** No reply came in time. */
    TIMEOUT,
    /** The master has made the change, and too few replicas or disks have confirmed it: a failover may undo it. */
    UNCONFIRMED,
    /** The queue's limit of messages, or the server's memory, is reached. */
    FULL,
    /** The user or password is wrong, or the user lacks a right. */
    DENIED,
    /** The server is too old or may evict keys, or the queue has an unknown layout. */
    UNSUPPORTED,
    /** The server replied with another error, or with something that is not the protocol. */
    SERVER,
    /** A defect of this library. */
    INTERNAL
  }

  /** Whether a failed call took effect. UNKNOWN: the reply was lost; {@link Queue#get} shows what the queue has. */
  public enum Applied { NO, YES, UNKNOWN }

  private static final Set<String> REFUSED_FOR_NOW = Set.of("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
      "READONLY", "ASK", "MISCONF", "NOREPLICAS", "NOSCRIPT", "REMAPPED", "BEHIND");
  private static final Map<String, Kind> KINDS = Map.of("MOVED", Kind.UNSUPPORTED, "OOM", Kind.FULL,
      "NOAUTH", Kind.DENIED, "WRONGPASS", Kind.DENIED, "NOPERM", Kind.DENIED, "LAYOUT", Kind.UNSUPPORTED,
      "BADARGS", Kind.INVALID_INPUT, "HELD", Kind.INVALID_INPUT);
  /** Scripts read each key before they write, so these come before the first write. */
  private static final Set<String> BEFORE_WRITES = Set.of("BADKEYS", "BADNOW", "WRONGTYPE");
  private static final String RIGHTS = "give the user the rights that `dueq acl ROLE QUEUE` lists";

  private final Kind kind;
  private final Applied applied;
  private final String code;
  private final String detail;
  private final String id;

  DueqException(Kind kind, Applied applied, String text, String code, String detail, String id, Throwable cause) {
    super(text, cause);
    this.kind = kind;
    this.applied = applied;
    this.code = code;
    this.detail = detail;
    this.id = id;
  }

  DueqException(Kind kind, Applied applied, String text) {
    this(kind, applied, text, null, "", null, null);
  }

  public Kind kind() {
    return kind;
  }

  public Applied applied() {
    return applied;
  }

  /** Whether the same call may succeed later. {@link #applied} says whether repeating it is harmless. */
  public boolean retryable() {
    return isOutage() || kind == Kind.FULL || kind == Kind.UNCONFIRMED;
  }

  /** The code of the server's error, such as NOPERM, or TOO_LARGE for a payload above the limit; else null. */
  public String code() {
    return code;
  }

  /** The id of the message, if it may have been stored; else null. */
  public String id() {
    return id;
  }

  /** The exception of this library behind what a future or a blocking call has thrown. */
  public static DueqException of(Throwable thrown) {
    var error = thrown;
    while ((error instanceof CompletionException || error instanceof ExecutionException) && error.getCause() != null) {
      error = error.getCause();
    }
    if (error instanceof DueqException ours) {
      return ours;
    }
    var text = "a defect of this library: " + error;
    return new DueqException(Kind.INTERNAL, Applied.UNKNOWN, text, null, "", null, error);
  }

  /** What the server said after the code. */
  String detail() {
    return detail;
  }

  boolean isOutage() {
    return kind == Kind.UNAVAILABLE || kind == Kind.TIMEOUT;
  }

  /** Whether the partition has another map than the caller. */
  boolean isRemapped() {
    return "REMAPPED".equals(code) || "BEHIND".equals(code);
  }

  private DueqException copy(Applied as, String note, String ofId) {
    return new DueqException(kind, as, getMessage() + note, code, detail, ofId, getCause());
  }

  DueqException as(Applied other) {
    return other == applied ? this : copy(other, "", id);
  }

  /** This error as that of a call whose earlier try may have been applied. */
  DueqException ofRepeated() {
    return applied == Applied.UNKNOWN ? this
        : copy(Applied.UNKNOWN, " (an earlier try may have taken effect)", id);
  }

  /** A copy for the caller of one message, with its id unless the call was not applied. */
  DueqException ofMessage(String messageId) {
    return copy(applied, "", applied == Applied.NO ? null : messageId);
  }

  static DueqException invalid(String text) {
    return invalid(text, null);
  }

  static DueqException invalid(String text, String code) {
    return new DueqException(Kind.INVALID_INPUT, Applied.NO, text, code, "", null, null);
  }

  static DueqException unavailable(String text) {
    return new DueqException(Kind.UNAVAILABLE, Applied.NO, text);
  }

  static DueqException unconfirmed(String verb, String shortfall) {
    return new DueqException(Kind.UNCONFIRMED, Applied.YES, verb + ": the master has done it, but " + shortfall
        + "; a failover may undo it: the same call again waits again");
  }

  static DueqException unexpected(String verb, Object what) {
    var shown = Replies.shown(what);
    return new DueqException(Kind.SERVER, Applied.UNKNOWN, "the reply to " + verb + " is not the protocol: "
        + shown.substring(0, Math.min(shown.length(), 200)) + " (`dueq doctor QUEUE` finds why)");
  }

  private static String hint(String code) {
    return switch (code) {
      case "OOM" -> "its memory is full: raise maxmemory; workers drain it meanwhile";
      case "NOAUTH", "WRONGPASS" -> "give user and password in the URL: redis://USER:PASSWORD@HOST/";
      case "MISCONF" -> "it cannot persist: look at its log and disk";
      case "WRONGTYPE" -> "another program uses a key of this queue: `dueq doctor QUEUE` names it";
      case "READONLY" -> "it is a replica: redis-cli ROLE names its master";
      case "CLUSTERDOWN" -> "it reaches no majority of masters, or slots are served by none: redis-cli CLUSTER NODES";
      case "NOREPLICAS" -> "too few replicas follow it: redis-cli INFO replication";
      case "BUSY" -> "a script runs for long: redis-cli SCRIPT KILL, or FUNCTION KILL, ends it";
      case "MOVED" -> "the queue is on another node of this cluster: connect with redis+cluster://";
      case "LAYOUT" -> "install a newer version of this package";
      case "NOPERM" -> RIGHTS;
      default -> null;
    };
  }

  /** The error for an error reply such as {@code LAYOUT this queue has layout 5}. */
  static DueqException ofReply(String address, String text) {
    var code = Replies.before(text, " ");
    var detail = Replies.after(text, " ");
    // Redis does not roll back a script that fails, and names the script in the text.
    var inScript = detail.contains("script: ");
    var lacksRight = code.equals("ERR")
        && (detail.startsWith("The user executing the script ") || detail.startsWith("ACL failure in script: "));
    var isDenied = inScript && (code.equals("NOPERM") || lacksRight);
    var kind = KINDS.getOrDefault(code, Kind.SERVER);
    var applied = Applied.NO;
    if (isDenied) {
      kind = Kind.DENIED;
      applied = Applied.UNKNOWN;
    } else if (REFUSED_FOR_NOW.contains(code) || code.equals("ERR") && detail.startsWith("max number of clients")) {
      kind = Kind.UNAVAILABLE;
    } else if (code.equals("UNBLOCKED")) { // the server became a replica while the call was blocked
      kind = Kind.UNAVAILABLE;
      applied = Applied.UNKNOWN;
    } else if (kind == Kind.SERVER && inScript && !BEFORE_WRITES.contains(code)) {
      applied = Applied.UNKNOWN;
    }
    var hint = isDenied ? RIGHTS : hint(code);
    var did = applied == Applied.NO ? "refused" : "stopped halfway";
    var message = "redis at " + address + " " + did + ": " + text + (hint == null ? "" : " (" + hint + ")");
    return new DueqException(kind, applied, message, code, detail, null, null);
  }

  @Override
  public String toString() {
    return "DueqException(" + kind.name().toLowerCase(Locale.ROOT) + ", applied " + applied.name().toLowerCase(Locale.ROOT)
        + "): " + getMessage();
  }
}
