"""Calls that wait until replicas or disks have confirmed them."""

from __future__ import annotations

import asyncio

import pytest
from servers_for_tests import Proxy, RedisServer

import dueq
from dueq import Applied, CancelOutcome, DueqError, Durability, ErrorKind, Message, PushOutcome


def test_a_change_that_no_replica_has_is_unconfirmed(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            safe = queue.durability(Durability.replicated(1, 0.02))
            # A queue that does not exist has nothing to lose.
            assert await safe.cancel("a") is CancelOutcome.ABSENT
            for _ in range(2):  # the same call again waits again
                with pytest.raises(DueqError, match="only 0 of 1 replicas") as caught:
                    await safe.push("", id="a", delay=60)
                error = caught.value
                assert (error.kind, error.applied, error.id) == (ErrorKind.UNCONFIRMED, Applied.YES, b"a")
                assert error.retryable
            many = await safe.push_many([Message("", id="b", delay=60), Message("", id="c", delay=60)])
            assert [getattr(one, "kind", None) for one in many] == [ErrorKind.UNCONFIRMED] * 2
            for call in (safe.run_now("b"), safe.reschedule("c", delay=1), safe.cancel("a")):
                with pytest.raises(DueqError, match="a failover may undo it"):
                    await call
            assert await queue.get("a") is None
            assert await safe.cancel("none") is CancelOutcome.ABSENT

    asyncio.run(main())


def test_a_change_is_confirmed_by_replicas_and_disks(server: RedisServer) -> None:
    async def main() -> None:
        replica = server.replica()
        try:
            async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client:
                queue = client.queue("q")
                safe = queue.durability(Durability.replicated(1, 10))
                assert (await safe.push("", id="a", delay=60)).created
                assert replica.client.hexists("dueq:{q}:messages", "a")
                if b"waitaof" in server.client.command_list():  # Redis 7.2
                    both = queue.durability(Durability.fsynced(local=True, replicas=1, timeout=10))
                    assert (await both.push("", id="b", delay=60)).created
                proxy.lose(lambda data: b"WAIT\r\n" in data)
                # The wait failed, so the call is made again: the message is there, and confirmed now.
                assert (await safe.push("", id="c", delay=60)).outcome is PushOutcome.EXISTS
        finally:
            replica.close()

    asyncio.run(main())


def test_a_server_that_cannot_wait_is_refused_before_any_change(server: RedisServer) -> None:
    async def main() -> None:
        server.client.config_set("appendonly", "no")
        async with dueq.connect(server.url) as client:
            queue = client.queue("q").durability(Durability.fsynced(local=True, timeout=1))
            with pytest.raises(DueqError, match=r"is not fit: .* (CONFIG SET appendonly yes|needs WAITAOF)") as caught:
                await queue.push("", id="a")
            assert (caught.value.kind, caught.value.applied) == (ErrorKind.UNSUPPORTED, Applied.NO)
            assert server.client.dbsize() == 0

    asyncio.run(main())
