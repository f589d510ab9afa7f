"""The same calls for programs without asyncio: one background thread runs the event loop of a client."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any, TypeVar, Unpack

from . import client as asyncio_client
from . import schedules as of
from .consumer import Handler
from .delivery import Retry
from .durability import Durability
from .errors import DueqError, invalid
from .in_batches import InBatches
from .model import (
    CancelOutcome,
    Id,
    Message,
    MessageEnd,
    Options,
    Receipt,
    Rescheduled,
    RunNowOutcome,
    Seconds,
    StoredMessage,
)
from .worker import Worker as AsyncioWorker

T = TypeVar("T")


class Client:
    """A client for any number of threads. Make it after a fork, in each process. Close it by `with` or `close()`."""

    def __init__(self, url: str) -> None:
        self._client = asyncio_client.Client(url)
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dueq", daemon=True)
        self._thread.start()

    def queue(self, name: str) -> Queue:
        return Queue(self, self._client.queue(name))

    def worker(self) -> Worker:
        return Worker(self, self._client.worker())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop of this client, and waits for it."""
        why = None
        if os.getpid() != self._process:
            why = "the client was made before this process was forked: make one in each process"
        elif self._loop.is_closed():
            why = "the client is closed: make a new one"
        elif threading.current_thread() is self._thread:
            why = "a call that blocks was made on the loop of its own client: it would wait for ever"
        if why:
            work.close()
            raise invalid(why)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # as after ctrl-c: what was sent is applied all the same
            raise

    def call_soon(self, call: Callable[[], None]) -> None:
        """Calls a function on the loop of this client."""
        self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Waits for the calls that are under way, and ends the thread."""
        if os.getpid() != self._process or self._loop.is_closed():
            return
        self.wait_for(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Queue:
    """One queue: the calls of `dueq.Queue`, each of which blocks until it has its result."""

    def __init__(self, client: Client, queue: asyncio_client.Queue) -> None:
        self._client = client
        self._queue = queue

    @property
    def name(self) -> str:
        return self._queue.name

    def durability(self, durability: Durability | None) -> Queue:
        return Queue(self._client, self._queue.durability(durability))

    def schedules(self, set: str) -> ScheduleSet:
        return ScheduleSet(self._client, self._queue.schedules(set))

    def schedule(self, name: str) -> ScheduleHandle:
        return ScheduleHandle(self._client, self._queue.schedule(name))

    def list_schedules(self) -> list[of.ScheduleInfo]:
        return self._client.wait_for(self._queue.list_schedules())

    def push(self, payload: bytes | str, **options: Unpack[Options]) -> Receipt:
        return self._client.wait_for(self._queue.push(payload, **options))

    def push_many(self, messages: Iterable[Message]) -> list[Receipt | DueqError]:
        return self._client.wait_for(self._queue.push_many(messages))

    def cancel(self, id: Id, *, dead: bool = False) -> CancelOutcome:
        return self._client.wait_for(self._queue.cancel(id, dead=dead))

    def reschedule(
        self,
        id: Id,
        *,
        delay: Seconds | None = None,
        due: datetime | int | None = None,
        expected: datetime | int | None = None,
    ) -> Rescheduled:
        return self._client.wait_for(self._queue.reschedule(id, delay=delay, due=due, expected=expected))

    def run_now(self, id: Id) -> RunNowOutcome:
        return self._client.wait_for(self._queue.run_now(id))

    def get(self, id: Id) -> StoredMessage | None:
        return self._client.wait_for(self._queue.get(id))

    def end_of(self, id: Id) -> MessageEnd | None:
        return self._client.wait_for(self._queue.end_of(id))


class ScheduleSet:
    """The calls of `dueq.ScheduleSet`."""

    def __init__(self, client: Client, set: of.ScheduleSet) -> None:
        self._client = client
        self._set = set

    def apply(self, schedules: Iterable[of.Schedule], **options: Unpack[of.ApplyOptions]) -> of.ScheduleChanges:
        return self._client.wait_for(self._set.apply(schedules, **options))


class ScheduleHandle:
    """The calls of `dueq.ScheduleHandle`."""

    def __init__(self, client: Client, handle: of.ScheduleHandle) -> None:
        self._client = client
        self._handle = handle

    def get(self) -> of.ScheduleInfo | None:
        return self._client.wait_for(self._handle.get())

    def pause(self) -> bool:
        return self._client.wait_for(self._handle.pause())

    def resume(self) -> bool:
        return self._client.wait_for(self._handle.resume())

    def remove(self) -> bool:
        return self._client.wait_for(self._handle.remove())


class Worker:
    """A worker whose `run` blocks the calling thread. Blocking handlers run in threads of their own."""

    def __init__(self, client: Client, worker: AsyncioWorker) -> None:
        self._client = client
        self._worker = worker
        self._ended = asyncio.Event()

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
        name = queue if isinstance(queue, str) else queue.name
        self._worker.queue(name, handler, concurrency=concurrency, lease=lease, retry=retry, time_limit=time_limit)
        return self

    def run(self, *, grace: Seconds = 10.0) -> None:
        """Handles messages until `stop` is called from another thread or a signal handler, or until ctrl-c."""
        try:
            self._client.wait_for(self._run(grace))
        except KeyboardInterrupt:
            self._client.wait_for(self._ended.wait())
            raise

    async def _run(self, grace: Seconds) -> None:
        try:
            await self._worker.run(grace=grace)
        finally:
            self._ended.set()

    def stop(self) -> None:
        self._client.call_soon(self._worker.stop)
