package io.dueq.model;

import java.util.OptionalLong;

/** A schedule of an apply, and its next fire in Unix milliseconds, if there is one. */
public record ScheduleChange(String name, OptionalLong nextMs) {}
