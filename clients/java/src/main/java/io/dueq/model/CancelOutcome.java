package io.dueq.model;

/** What a cancel did. NEXT: a handler has the message; the message that should follow it is gone. */
public enum CancelOutcome { CANCELLED, NEXT, LEASED, DEAD, ABSENT }
