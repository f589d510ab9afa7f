package io.dueq;

import static io.dueq.DueqException.invalid;

import java.time.Duration;
import java.time.Instant;
import java.util.List;

/** How a delivery is settled: what a handler returns. An exception of a handler is a retry. */
public final class Settlement {
  final String verb;
  /** The due time or the time to wait, as the script reads it. */
  final String word;
  final String text;
  final List<Message> messages;

  private Settlement(String verb, String word, String text, List<Message> messages) {
    this.verb = verb;
    this.word = word;
    this.text = text;
    this.messages = messages;
  }

  private Settlement(String verb, String word, String text) {
    this(verb, word, text, List.of());
  }

  /** Done: the message is removed. */
  public static Settlement ack() {
    return new Settlement("ack", "", "");
  }

  /** Done, and in the same step these messages are stored, 100 at most. Those without an id are named after it. */
  public static Settlement ackAnd(List<Message> messages) {
    if (messages.isEmpty() || messages.size() > 100) {
      throw invalid("ackAnd takes 1 to 100 messages, not " + messages.size());
    }
    return new Settlement("ack_push", "", "", List.copyOf(messages));
  }

  /** Done for this time: the message is due again then, with its attempts reset. */
  public static Settlement again(Duration delay) {
    return new Settlement("again", Message.dueWord(delay, null), "");
  }

  public static Settlement again(Instant due) {
    return new Settlement("again", Message.dueWord(null, due), "");
  }

  /** Failed: due again after the delay of the worker; dead at the limit of attempts. */
  public static Settlement retry(Object error) {
    return new Settlement("retry", "", describe(error));
  }

  /** Failed: due again after this time. */
  public static Settlement retry(Object error, Duration after) {
    return new Settlement("retry", String.valueOf(Message.delayMs(after)), describe(error));
  }

  /** Given back: due at once, and no attempt counts. */
  public static Settlement release() {
    return new Settlement("release", "", "");
  }

  /** Failed for good: the message is dead at once, for this reason. */
  public static Settlement bury(Object reason) {
    return new Settlement("bury", "", describe(reason));
  }

  /** Too early: due again then, and no attempt counts. */
  public static Settlement snooze(Duration delay) {
    return new Settlement("snooze", Message.dueWord(delay, null), "");
  }

  public static Settlement snooze(Instant due) {
    return new Settlement("snooze", Message.dueWord(null, due), "");
  }

  /** The receiver wants a break: given back, and no message of the queue starts for so long. */
  public static Settlement throttle(Duration wait) {
    return new Settlement("throttle", String.valueOf(Message.millis(wait)), "");
  }

  /** What a handler has thrown as text: also of an exception whose text throws. */
  static String describe(Object error) {
    try {
      return String.valueOf(error);
    } catch (RuntimeException | Error second) {
      return "a " + error.getClass().getName() + " without a text";
    }
  }
}
