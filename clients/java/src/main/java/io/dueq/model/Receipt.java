package io.dueq.model;

import java.util.Optional;
import java.util.OptionalLong;

/**
 * What a push did.
 *
 * @param state with EXISTS: the state of the message that has the id
 * @param untilMs with REMEMBERED: the end of the window, in Unix milliseconds
 */
public record Receipt(String id, Outcome outcome, Optional<StoredMessage.State> state, OptionalLong untilMs) {
  /** What a push did. */
  public enum Outcome {
    CREATED,
    /** The id is in the queue; nothing was changed. A repeated push has this outcome. */
    EXISTS,
    MOVED,
    /** A handler has the message; this one follows the delivery. */
    NEXT,
    /** A window remembers the id; nothing was stored. */
    REMEMBERED,
    /** An earlier try of this call was applied, and the message has ended since. */
    FINISHED
  }

  public boolean created() {
    return outcome == Outcome.CREATED;
  }
}
