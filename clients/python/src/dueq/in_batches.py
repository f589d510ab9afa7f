"""Handlers of batches: one call of the handler for many messages, each settled for itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .delivery import Delivery, Settlement
from .errors import invalid
from .model import Seconds, milliseconds

BatchHandler = Callable[[list[Delivery]], Awaitable[object]] | Callable[[list[Delivery]], object]
_Waiting = tuple[Delivery, asyncio.Future[object]]


@dataclass(frozen=True, slots=True)
class InBatches:
    """A handler that takes 1 to `most` messages at a time; made by `in_batches`."""

    most: int
    linger_ms: int
    handler: BatchHandler


def in_batches(most: int, linger: Seconds, handler: BatchHandler) -> InBatches:
    """A handler of batches, for a queue of a worker.

    A batch is closed when it has `most` messages, when `linger` (at most a third of the lease) has passed since its
    first one, or when the worker stops. The concurrency of the queue counts batches. The handler returns a `Settlement`
    for all deliveries, or a list with one for each, in their order; anything else is an ack of all. An exception
    retries all, and a delivery without a settlement is retried. A message whose earlier lease ran out comes alone, so
    that one which crashes its worker harms no other. A blocking handler runs in a thread.
    """
    if most < 1:
        raise invalid(f"a batch of at most {most} messages: give at least 1")
    return InBatches(most, milliseconds(linger), handler)


class Batches:
    """Gathers the deliveries of one queue, and gives each its settlement."""

    def __init__(self, spec: InBatches, concurrency: int, time_limit: float | None) -> None:
        self._spec = spec
        self._is_async = inspect.iscoroutinefunction(spec.handler)
        if time_limit is not None and not self._is_async:
            raise invalid("a time_limit needs an async handler: a thread cannot be ended")
        self._time_limit = time_limit
        self._free = asyncio.Semaphore(concurrency)
        self._open: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, delivery: Delivery) -> object:
        """How a delivery is settled, once the batch that it joins was handled."""
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        one = (delivery, answer)
        if delivery.crashes:
            self._begin([one])
        else:
            self._open.append(one)
            if len(self._open) == self._spec.most:
                self._flush()
            elif self._timer is None:
                # Without linger, too, the other deliveries of the claim join first.
                linger = 0.0 if self._is_closed else self._spec.linger_ms / 1_000
                self._timer = asyncio.get_running_loop().call_later(linger, self._flush)
        return await answer

    def close(self) -> None:
        """The worker stops: no batch waits for more messages."""
        self._is_closed = True
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._open = self._open, []
        self._begin(batch)

    def _begin(self, batch: list[_Waiting]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        for _, answer in batch:
            # Once nobody waits for it, its handler is cancelled: all leases were lost, or the worker has stopped.
            answer.add_done_callback(lambda _: task.cancel() if all(one.cancelled() for _, one in batch) else None)

    async def _run(self, batch: list[_Waiting]) -> None:
        async with self._free:
            batch = [one for one in batch if not one[1].done()]
            if not batch:
                return
            try:
                answers = self._each(await self._handled([delivery for delivery, _ in batch]), len(batch))
            except BaseException as error:
                answers = [error] * len(batch)
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if waiting.done():
                continue
            if isinstance(answer, BaseException):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)

    async def _handled(self, deliveries: list[Delivery]) -> object:
        if self._is_async:
            async with asyncio.timeout(self._time_limit):
                return await self._spec.handler(deliveries)  # type: ignore[misc]
        # The place of a thread is not free before the thread has ended.
        thread = asyncio.ensure_future(asyncio.to_thread(self._spec.handler, deliveries))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait([thread])
            raise

    @staticmethod
    def _each(answer: object, count: int) -> list[object]:
        if not isinstance(answer, list):
            return [answer] * count
        text = f"the handler of the batch returned {len(answer)} settlements, and none for this delivery"
        return answer[:count] + [Settlement.retry(text)] * (count - len(answer))
