"""A node whose server answers exactly when the test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from test_consumer import LIMIT

from dueq import Applied, DueqError, ErrorKind
from dueq.errors import of_reply
from dueq.node import Node
from dueq.partition import Partition
from dueq.servers import Servers

Heard = Callable[[bytes | None], None]


def reply(*body: object, incarnation: bytes = b"i", head_ms: int = -1) -> list[object]:
    return [[time.time_ns() // 1_000, incarnation, 1, head_ms, -1, 0], *body]


class Scripted(Servers):
    """Hands each call of a script to the test, which answers it."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()
        self.listening: asyncio.Future[Heard] = asyncio.get_running_loop().create_future()

    async def of_key(self, key: str) -> Any:
        return self

    async def listen(self, channel: str, heard: Heard) -> None:
        self.listening.set_result(heard)
        await asyncio.Event().wait()

    async def call(self, key: str, *words: object) -> Any:
        await asyncio.Event().wait()  # no token comes

    async def run(self, verb: str, keys: Sequence[str], arguments: Sequence[object]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((verb, answer))
        return await answer

    async def answered(self, verb: str) -> asyncio.Future[Any]:
        """The answer that the next call waits for."""
        async with asyncio.timeout(LIMIT):
            called, answer = await self.calls.get()
        assert called == verb
        return answer


class Idle:
    """A host with a free handler."""

    free, running = 1, 0

    def __init__(self) -> None:
        self.has_free = asyncio.Event()

    def dispatch(self) -> None: ...

    def saw_epoch(self, epoch: int | None) -> None: ...


@contextmanager
def node_of(servers: Servers) -> Iterator[None]:
    node = Node(servers, Partition(servers, "q", "-"), "node", Idle())
    task = asyncio.create_task(node.run())
    try:
        yield
    finally:
        task.cancel()


def run(test: Callable[[Scripted], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueq.node._BEAT", 3_600.0)  # no beat comes by itself

    async def main() -> None:
        servers = Scripted()
        with node_of(servers):
            await test(servers)

    asyncio.run(main())


def test_a_beat_that_was_sent_before_a_notice_spares_the_timer_of_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(servers: Scripted) -> None:
        standby = (0, 2, 0, 0)
        (await servers.answered("beat")).set_result(reply(*standby))
        heard = await servers.listening
        heard(None)
        late = await servers.answered("beat")
        heard(str(time.time_ns() // 1_000_000 + 200).encode())
        late.set_result(reply(*standby))  # it knew of no message yet
        await servers.answered("promote")

    run(test, monkeypatch)


def test_a_notice_of_a_queue_that_did_not_exist_brings_a_beat_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(servers: Scripted) -> None:
        (await servers.answered("beat")).set_result(reply(0, 0, 0, 0, incarnation=b""))
        heard = await servers.listening
        await asyncio.sleep(0)  # the node has used the beat
        heard(str(time.time_ns() // 1_000_000 + 3_600_000).encode())
        await servers.answered("beat")

    run(test, monkeypatch)


def test_a_lease_begins_with_the_try_of_the_claim_that_was_granted() -> None:
    async def began_after_the_loss(*, held: bool) -> bool:
        servers = Scripted()
        node = Node(servers, Partition(servers, "q", "-"), "node", Idle())
        claim = asyncio.create_task(node.claim(1, b"t" * 16, 2_000))
        lost = await servers.answered("claim")
        lost_at = time.monotonic()
        lost.set_exception(DueqError(ErrorKind.UNAVAILABLE, Applied.UNKNOWN, "lost"))
        again = await servers.answered("claim")
        if held:  # the first try was applied
            again.set_exception(of_reply("redis", "HELD this token has a lease"))
            again = await servers.answered("held")
        again.set_result(reply(0, 0, [], [], []))
        _, expires = await claim
        return expires - 2 >= lost_at

    assert asyncio.run(began_after_the_loss(held=False))
    assert not asyncio.run(began_after_the_loss(held=True))


def test_a_beat_that_swallows_its_cancellation_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Scripted):
        """Answers its first call also after that was cancelled, as `wait_for` of Python 3.11 may."""

        swallowed = False

        async def run(self, verb: str, keys: Sequence[str], arguments: Sequence[object]) -> Any:
            try:
                return await super().run(verb, keys, arguments)
            except asyncio.CancelledError:
                if self.swallowed:
                    raise
                self.swallowed = True
                return reply(0, 2, 0, 0)

    async def main() -> None:
        servers = Deaf()
        task = asyncio.create_task(Node(servers, Partition(servers, "q", "-"), "node", Idle()).run())
        await servers.answered("beat")
        task.cancel()
        _, running = await asyncio.wait([task], timeout=LIMIT)
        assert not running

    monkeypatch.setattr("dueq.node._BEAT", 0.01)
    asyncio.run(main())
