"""Gathers the items of many callers into calls: while one call is under way, the items that come share the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from .durability import Durability
from .errors import Applied, DueqError, ErrorKind, unconfirmed, unexpected
from .partition import PATIENCE, Attempt, Partition, Patience
from .replies import Reply, is_change, verdict
from .server import Word

BATCH_BYTES = 1024 * 1024
ENOUGH = 32
"""With this many waiting items a second call may be under way: a call costs Redis about as much as eight items."""
LINGER = 0.001
_MOST = {"push": 256, "ack": 256, "upsert": 64, "throttle": 16}
# What is sent before the items.
_ATTEMPT, _SINCE = ("push", "upsert"), ("cancel", "cancel_dead")
_SETTLEMENTS = ("ack", "again", "release", "bury", "retry", "snooze", "throttle")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one item as the script said it, and whether the item was sent more than once."""

    text: str
    now_us: int
    repeated: bool


class Refused(Exception):
    """The partition has another map; no try of the item was applied, or `error` says that one may have been."""

    def __init__(self, error: DueqError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False, slots=True)
class _Item:
    arguments: tuple[Word, ...]
    repeatable: bool
    future: asyncio.Future[Answer] = field(repr=False)

    @property
    def size(self) -> int:
        return sum([len(word) for word in self.arguments if not isinstance(word, int)])

    def finish(self, answer: Answer | Exception) -> None:
        if self.future.done():  # the caller does not wait any more
            return
        if isinstance(answer, Answer):
            self.future.set_result(answer)
        else:
            self.future.set_exception(answer)


class Lane:
    """The calls of one verb at one partition, under one fence."""

    def __init__(self, partition: Partition, verb: str, fence: str = "", durability: Durability | None = None) -> None:
        self._partition = partition
        self._verb = verb
        self._send = partial(_Call, partition, verb, fence, durability)
        self._most = _MOST.get(verb, 128)
        # Nobody waits for the settlements of handlers, so they wait a little for each other.
        self._linger = LINGER if verb in _SETTLEMENTS else 0.0
        self._enough = 128 if verb in _SETTLEMENTS else ENOUGH
        self._waiting: deque[_Item] = deque()
        self._unsafe = 0
        self._calls: dict[asyncio.Task[None], bool] = {}
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._last_sent = 0.0

    def submit(self, *arguments: Word, repeatable: bool = True) -> asyncio.Future[Answer]:
        """Adds an item. The future may be cancelled: an item that was sent is applied all the same."""
        loop = asyncio.get_running_loop()
        item = _Item(arguments, repeatable, loop.create_future())
        self._waiting.append(item)
        self._unsafe += not repeatable
        self._wake(loop)
        return item.future

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._calls

    async def drain(self) -> None:
        """Waits until nothing is waiting or under way."""
        while not self.idle:
            self._start()
            if self._calls:
                await asyncio.wait(list(self._calls))

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting or not self._may_start():
            return
        full = len(self._waiting) >= self._enough
        wait = 0.0 if full else self._last_sent + self._linger - monotonic()
        if self._timer is not None:
            if not full:
                return
            self._timer.cancel()
        # Not at once: the other tasks that are ready add their items first.
        self._timer = loop.call_later(wait, self._start) if wait > 0 else loop.call_soon(self._start)

    def _may_start(self) -> bool:
        if not self._calls:
            return True
        # Items that must not be repeated keep their order, so their calls follow each other.
        ordered = self._unsafe or any(self._calls.values())
        return len(self._calls) == 1 and len(self._waiting) >= self._enough and not ordered

    def _start(self) -> None:
        self._timer = None
        if not self._may_start():
            return
        batch: list[_Item] = []
        size = 0
        while self._waiting and len(batch) < self._most:
            item = self._waiting[0]
            if not item.future.cancelled():
                size += item.size
                if batch and size > BATCH_BYTES:
                    break
                batch.append(item)
            self._waiting.popleft()
            self._unsafe -= not item.repeatable
        if not batch:
            return
        self._last_sent = monotonic()
        task = asyncio.get_running_loop().create_task(self._send(batch).finish())
        self._calls[task] = not all(item.repeatable for item in batch)
        task.add_done_callback(self._ended)
        self._wake(asyncio.get_running_loop())

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        if not task.cancelled():
            self._wake(task.get_loop())


class _Call:
    """A batch that is sent until each of its items has a result."""

    def __init__(
        self, partition: Partition, verb: str, fence: str, durability: Durability | None, batch: list[_Item]
    ) -> None:
        self._partition = partition
        self._verb = verb
        self._fence = fence
        self._durability = durability
        self._batch = batch
        self._patience = Patience()
        self._began = monotonic()
        self._attempt: Attempt | None = None
        self._repeated = False

    async def finish(self) -> None:
        try:
            while self._batch:
                await self._send()
                if self._batch:
                    await self._patience.pause()
        except BaseException as error:
            # Also if the task is cancelled, as at the end of the event loop: nobody may wait for ever.
            text = f"{self._verb} ended before its reply: {error!r}"
            self._fail(DueqError(ErrorKind.INTERNAL, Applied.UNKNOWN, text))
            if not isinstance(error, Exception):
                raise

    async def _send(self) -> None:
        try:
            prefix = await self._prefix()
        except DueqError as error:
            if not self._patience.allows(error, True):
                self._fail(error)
            return
        batch, arguments = self._arguments()
        verb = "cancel" if self._verb == "cancel_dead" else self._verb
        try:
            reply = await self._partition.call(
                verb, *prefix, *arguments, fence=self._fence, durability=self._durability
            )
            texts = _texts(verb, reply, len(batch))
        except DueqError as error:
            self._not_replied(error)
            return
        missing, again = reply.missing, list[_Item]()
        may_repeat = isinstance(missing, DueqError) and self._patience.allows(missing, True)
        self._batch = []
        for item, text in zip(batch, texts, strict=True):
            if not missing or not is_change(verb, text):
                self._judge(item, text, reply.header.now_us)
            elif may_repeat and item.repeatable:
                again.append(item)  # another master may lack the change
            else:
                failed = isinstance(missing, DueqError)
                item.finish(unconfirmed(verb, f"the wait for it failed: {missing}" if failed else str(missing)))
        if again:
            self._batch += again
            self._repeated = True
        elif self._batch:
            self._attempt = None  # the items that are left are sent as a new call
            self._repeated = False

    async def _prefix(self) -> tuple[str, ...]:
        if self._verb in _ATTEMPT:
            if self._attempt is None:
                await self._partition.learn_time()
                self._attempt = Attempt(self._partition.clock)
            return (self._attempt.argument,)
        if self._verb in _SINCE:
            dead = "1" if self._verb == "cancel_dead" else ""
            if not self._repeated:
                return (dead,)
            await self._partition.learn_time(again=True)
            since_ms = self._partition.clock.earliest_us(self._began) // 1000
            return (f"{dead} since={since_ms}".strip(),)
        return ()

    def _arguments(self) -> tuple[list[_Item], list[Word]]:
        """The items in the order of sending, and their arguments. An ack names each claim once."""
        if self._verb != "ack":
            return self._batch, [word for item in self._batch for word in item.arguments]
        claims: dict[Word, list[_Item]] = {}
        for item in self._batch:
            claims.setdefault(item.arguments[0], []).append(item)
        arguments: list[Word] = []
        for token, items in claims.items():
            arguments += [token, len(items), *(item.arguments[1] for item in items)]
        return [item for items in claims.values() for item in items], arguments

    def _judge(self, item: _Item, text: str, now_us: int) -> None:
        """Gives a result to its caller, or keeps the item for a new call."""
        then = "final"
        if self._attempt is not None:
            then = verdict(text, self._repeated, self._attempt.latest_start_us)
        if then == "again":
            late = DueqError(ErrorKind.TIMEOUT, Applied.NO, f"{self._verb} was too late: the server's clock was set")
            if self._patience.allows(late, True):
                self._batch.append(item)
            else:
                item.finish(late)
        elif then == "unknown":
            why = f"{self._verb} was repeated for up to {PATIENCE:g} s and its first reply was lost"
            item.finish(DueqError(ErrorKind.TIMEOUT, Applied.UNKNOWN, why))
        else:
            item.finish(Answer(text, now_us, self._repeated))

    def _not_replied(self, error: DueqError) -> None:
        if error.is_remapped:
            known = error.of_repeated() if self._repeated else error
            batch, self._batch = self._batch, []
            for item in batch:
                item.finish(Refused(known))
            return
        again = [item for item in self._batch if self._patience.allows(error, item.repeatable)]
        kept = set(map(id, again))
        self._batch = [item for item in self._batch if id(item) not in kept]
        self._fail(error)
        self._batch = again
        self._repeated |= error.applied is not Applied.NO

    def _fail(self, error: DueqError) -> None:
        failure = error.of_repeated() if self._repeated else error
        for item in self._batch:
            item.finish(failure)
        self._batch = []


def _texts(verb: str, reply: Reply, items: int) -> list[str]:
    try:
        texts = [text.decode("utf-8", "replace") for text in reply.body[0]]
    except (TypeError, AttributeError, LookupError):
        raise unexpected(verb, reply.body) from None
    if len(texts) == 1 and verb in ("push", "ack"):
        return texts * items  # one result stands for all items
    if len(texts) != items:
        raise unexpected(verb, f"{len(texts)} results for {items} items")
    return texts
