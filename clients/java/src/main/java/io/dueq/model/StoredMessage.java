package io.dueq.model;

import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * A message as the queue has it.
 *
 * @param timeMs when it is due; of a leased message when its lease ends; of a dead one when it died
 */
public record StoredMessage(String id, State state, long timeMs, int failures, int crashes, OptionalInt maxAttempts,
    int cost, String error, byte[] payload, OptionalLong nextDueMs) {
  /** Where a message is. */
  public enum State { SCHEDULED, READY, LEASED, DEAD }
}
