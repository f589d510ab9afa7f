package io.dueq.model;

import java.util.List;

/** What an apply did; of a dry run, what it would do. */
public record ScheduleChanges(List<ScheduleChange> created, List<ScheduleChange> changed, List<ScheduleChange> kept,
    List<String> removed) {}
