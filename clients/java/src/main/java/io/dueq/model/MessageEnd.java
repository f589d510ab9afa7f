package io.dueq.model;

import java.util.OptionalLong;

/** How the message of a remembered id ended; times in Unix milliseconds. */
public record MessageEnd(Kind kind, long endedAtMs, OptionalLong rememberedUntilMs) {
  /** How a message ends. */
  public enum Kind { FINISHED, EXPIRED, CANCELLED }
}
