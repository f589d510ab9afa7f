package io.dueq.model;

/** The schedule that made a message, and the fire that it stands for, in Unix milliseconds. */
public record Tick(String schedule, long nominalMs) {}
