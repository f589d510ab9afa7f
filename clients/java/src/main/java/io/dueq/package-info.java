/** A producer and a consumer of dueq, a distributed delay queue on Redis. It begins with {@link io.dueq.Client#connect}. */
package io.dueq;
