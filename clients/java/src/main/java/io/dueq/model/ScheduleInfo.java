package io.dueq.model;

import java.util.OptionalLong;

/**
 * A schedule as the queue has it, and what became of its fires.
 *
 * @param nextMs its next fire in Unix milliseconds, if it is active
 */
public record ScheduleInfo(String name, State state, OptionalLong nextMs, long made, long missed, long overlapped,
    long paused, long triggered, String spec, String options, String pattern) {
  /** Whether it fires. DRY: its list of fires is at its end, and a program has to make a new one. */
  public enum State { ACTIVE, PAUSED, DRY, ENDED }
}
