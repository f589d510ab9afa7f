"""The worker: a node that handles the messages of its queues."""

from __future__ import annotations

import asyncio
import secrets
import string
from typing import TYPE_CHECKING

from .consumer import Consumer, Handler, Settings
from .delivery import Retry
from .errors import invalid
from .in_batches import Batches, InBatches
from .model import Seconds, milliseconds

if TYPE_CHECKING:
    from .client import Client, Queue

_DIGITS = string.ascii_letters + string.digits
_MAX_LEASE_MS = 86_400_000


class Worker:
    """Handles the messages of its queues, from `run` to `stop`. Made by `Client.worker`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._consumers: list[Consumer] = []
        self._stop = asyncio.Event()
        self._began = False
        self.node_id = "".join(secrets.choice(_DIGITS) for _ in range(16))

    def queue(
        self,
        queue: Queue | str,
        handler: Handler | InBatches,
        *,
        concurrency: int = 16,
        lease: Seconds = 30.0,
        retry: Retry | None = None,
        time_limit: Seconds | None = None,
    ) -> Worker:
        """Adds a queue. Each queue has handlers of its own, so that none waits for another's.

        `handler` is an async function, or a blocking one, which runs in a thread. What it returns settles the
        delivery: a `Settlement`; anything else is an ack. An exception is a retry after the delay of `retry`.
        """
        if self._began:
            raise invalid("the worker runs: give it all queues before")
        queue = self._client.queue(queue) if isinstance(queue, str) else queue
        if any(consumer.queue.name == queue.name for consumer in self._consumers):
            raise invalid(f"the worker has queue {queue.name} already")
        if not callable(handler) and not isinstance(handler, InBatches):
            raise invalid(f"queue {queue.name} needs a handler: a function of a delivery")
        if not 1 <= concurrency <= 10_000:
            raise invalid(f"concurrency is {concurrency}, it must be a whole number from 1 to 10000")
        lease_ms = milliseconds(lease)
        if not 1 <= lease_ms <= _MAX_LEASE_MS:
            raise invalid(f"the lease is {lease_ms} ms, it must be 1 to {_MAX_LEASE_MS} (a day)")
        limit = None if time_limit is None else milliseconds(time_limit) / 1_000
        if isinstance(handler, InBatches):
            if handler.linger_ms > lease_ms // 3:
                raise invalid(f"a batch lingers for {handler.linger_ms} ms, more than a third of the lease")
            most, limit, handler = handler.most, None, Batches(handler, concurrency, limit)
            concurrency *= most
        settings = Settings(concurrency, lease_ms, retry or Retry(), limit)
        self._consumers.append(Consumer(queue, handler, settings, self.node_id))
        return self

    async def run(self, *, grace: Seconds = 10.0) -> None:
        """Handles messages until `stop`, or until it is cancelled. Then handlers have `grace` to end.

        What they have not ended by then is released, and no attempt counts.
        """
        if self._began:
            raise invalid("the worker runs, or has run: make a new one")
        if not self._consumers:
            raise invalid("the worker has no queue: add one by `queue` before it runs")
        self._client.check()
        self._began = True
        running = asyncio.ensure_future(self._run(milliseconds(grace) / 1_000))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    async def _run(self, grace: float) -> None:
        async with asyncio.TaskGroup() as group:
            for consumer in self._consumers:
                group.create_task(consumer.run(self._stop, grace))

    def stop(self) -> None:
        """Claims no more messages, and ends `run` once the handlers have ended. Fit for signal handlers."""
        self._stop.set()
