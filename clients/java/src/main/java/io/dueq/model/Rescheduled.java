package io.dueq.model;

import java.util.OptionalLong;

/**
 * What a reschedule did.
 *
 * @param dueMs with MOVED and CONFLICT: when the message is due now, in Unix milliseconds
 */
public record Rescheduled(Outcome outcome, OptionalLong dueMs) {
  /** CONFLICT: the message has another due time than the expected one. */
  public enum Outcome { MOVED, CONFLICT, LEASED, DEAD, ABSENT }
}
