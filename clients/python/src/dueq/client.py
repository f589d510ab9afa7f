"""The client, and the calls of producers on a queue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, Unpack

from . import replies
from .batches import Answer
from .durability import Durability
from .errors import DueqError, invalid
from .model import (
    CancelOutcome,
    Id,
    Message,
    MessageEnd,
    MessageState,
    OnConflict,
    Options,
    PushOutcome,
    Receipt,
    Rescheduled,
    RescheduleOutcome,
    RunNowOutcome,
    Seconds,
    StoredMessage,
    checked_id,
    due_word,
    shown,
    unix_ms,
)
from .router import Router
from .routes import HOME
from .schedules import ScheduleHandle, ScheduleInfo, ScheduleSet, all_schedules
from .servers import servers_of

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")


class Client:
    """A connection to the servers of a URL. It belongs to one event loop, and to one process.

    Nothing is sent before the first call. Close it by `async with` or `close()`.
    """

    def __init__(self, url: str) -> None:
        self._servers = servers_of(url)
        self._routers: dict[str, Router] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._closed = False

    def queue(self, name: str) -> Queue:
        """The queue of this name: 1 to 128 bytes, no control characters and none of `/ { }`."""
        router = self._routers.get(name)
        if router is None:
            router = self._routers[name] = Router(self._servers, name)
        return Queue(self, router)

    def worker(self) -> Worker:
        """A new worker, which handles the messages of the queues that it is given."""
        from .worker import Worker

        return Worker(self)

    def check(self) -> None:
        """Refuses a call where connections cannot be used: in another event loop, after a fork, or after `close`."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise invalid("the client is closed: make a new one")
        if os.getpid() != self._process:
            raise invalid("the client was made before this process was forked: make one in each process")
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise invalid("the client belongs to another event loop: make one in each loop, or use dueq.blocking")

    async def close(self) -> None:
        """Waits for the calls that are under way, and closes the connections."""
        if self._closed:
            return
        if self._loop is None:
            self._closed = True
            return
        self.check()
        for router in self._routers.values():
            await router.drain()
        self._closed = True
        await self._servers.close()

    async def __aenter__(self) -> Client:
        self.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Queue:
    """One queue. Calls raise `DueqError`; what may be expected is a value."""

    def __init__(self, client: Client, router: Router, durability: Durability | None = None) -> None:
        self.client = client
        self.router = router
        self._durability = durability

    @property
    def name(self) -> str:
        return self.router.queue

    def durability(self, durability: Durability | None) -> Queue:
        """This queue with calls that wait until replicas or disks have confirmed them; None: the master's memory."""
        return Queue(self.client, self.router, durability)

    def schedules(self, set: str) -> ScheduleSet:
        """A set of schedules to declare: all of one owner, such as those of a service."""
        return ScheduleSet(self.client, self.router, set)

    def schedule(self, name: str) -> ScheduleHandle:
        """One schedule of this queue."""
        return ScheduleHandle(self.client, self.router, name)

    async def list_schedules(self) -> list[ScheduleInfo]:
        """All schedules of this queue, in the order of their sets."""
        self.client.check()
        return await all_schedules(self.router.partition(HOME))

    async def push(self, payload: bytes | str, **options: Unpack[Options]) -> Receipt:
        """Stores a message. Without `delay` and `due` it is due at once.

        Pushes that are made while a call is under way share the next call.
        """
        return await self.push_message(Message(payload, **options))

    async def push_many(self, messages: Iterable[Message]) -> list[Receipt | DueqError]:
        """Stores many messages in few calls. Each has a receipt or an error of its own, in their order."""
        made = list(messages)
        found: dict[int, Receipt | DueqError] = {}
        for verb in ("push", "upsert"):
            places = [at for at, message in enumerate(made) if _verb(message) == verb]
            if not places:
                continue
            self.client.check()
            items = [(made[at].id, made[at].arguments, made[at].repeatable) for at in places]
            for at, answer in zip(places, await self.router.items(verb, items, self._durability), strict=True):
                try:
                    found[at] = _receipt(made[at], answer)
                except DueqError as error:
                    found[at] = error
        return [found[at] for at in range(len(made))]

    async def push_message(self, message: Message) -> Receipt:
        """Stores a message that is made already."""
        self.client.check()
        try:
            answer = await self.router.item(
                _verb(message),
                message.id,
                *message.arguments,
                repeatable=message.repeatable,
                durability=self._durability,
            )
        except DueqError as error:
            raise error.of_message(message.id) from error.__cause__
        return _receipt(message, answer)

    async def cancel(self, id: Id, *, dead: bool = False) -> CancelOutcome:
        """Removes a message that waits; with `dead` also one that is dead. Repeated, it is `CANCELLED` for 12 s."""
        found = await self._item("cancel_dead" if dead else "cancel", checked_id(id))
        return CancelOutcome(found.outcome)

    async def reschedule(
        self,
        id: Id,
        *,
        delay: Seconds | None = None,
        due: datetime | int | None = None,
        expected: datetime | int | None = None,
    ) -> Rescheduled:
        """Moves a message that waits. With `expected` only from that due time; then a `due` may be repeated."""
        if delay is None and due is None:
            raise invalid("reschedule needs a delay or a due time")
        raw, word = checked_id(id), due_word(delay, due)
        before = "" if expected is None else str(unix_ms(expected))
        # A repeated delay would count from the repetition.
        repeatable = word[0] != "+" and before != ""
        found = await self._item("reschedule", raw, word, before, repeatable=repeatable)
        return Rescheduled(RescheduleOutcome(found.outcome), found.ms)

    async def run_now(self, id: Id) -> RunNowOutcome:
        """Makes a message that waits due now."""
        found = await self._item("run_now", checked_id(id), repeatable=False)
        return RunNowOutcome(found.outcome)

    async def get(self, id: Id) -> StoredMessage | None:
        """The message, whatever its state; None if the queue has none of this id."""
        found = await self._known(id)
        return found if isinstance(found, StoredMessage) else None

    async def end_of(self, id: Id) -> MessageEnd | None:
        """How the message ended, if a `window` remembers it, or if it was cancelled in the last 12 s."""
        found = await self._known(id)
        return found if isinstance(found, MessageEnd) else None

    async def _known(self, id: Id) -> object:
        self.client.check()
        raw = checked_id(id)
        return await self.router.get(raw, lambda reply: replies.get(reply, raw))

    async def _item(self, verb: str, id: bytes, *more: str, repeatable: bool = True) -> replies.Result:
        self.client.check()
        try:
            answer = await self.router.item(verb, id, id, *more, repeatable=repeatable, durability=self._durability)
        except DueqError as error:
            raise error.of_message(id) from error.__cause__
        return decoded("cancel" if verb == "cancel_dead" else verb, answer)


def decoded(verb: str, answer: Answer) -> replies.Result:
    try:
        return replies.result(verb, answer.text)
    except DueqError as error:
        # The limits of the queue may have changed since an earlier try, which may have been applied.
        raise (error.of_repeated() if answer.repeated else error) from error.__cause__


def _verb(message: Message) -> str:
    return "push" if message.on_conflict is OnConflict.KEEP else "upsert"


def _receipt(message: Message, answer: Answer | Exception) -> Receipt:
    if isinstance(answer, Exception):
        raise answer.of_message(message.id) if isinstance(answer, DueqError) else answer
    found = decoded(_verb(message), answer)
    state = MessageState(found.state) if found.state else None
    return Receipt(shown(message.id), PushOutcome(found.outcome), state, found.ms)
