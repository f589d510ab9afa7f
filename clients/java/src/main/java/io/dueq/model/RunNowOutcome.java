package io.dueq.model;

/** What a run now did. ALREADY: it was due, and nothing was changed. */
public enum RunNowOutcome { MOVED, ALREADY, LEASED, DEAD, ABSENT }
