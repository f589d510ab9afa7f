package io.dueq;

/** Stub. */
public final class Worker {
  Worker(Client client) {}
}
