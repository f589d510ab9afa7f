"""Handlers that take many messages at a time."""

from __future__ import annotations

import asyncio

import pytest
from servers_for_tests import RedisServer
from test_consumer import running, until

import dueq
from dueq import Delivery, DueqError, Message, Retry, Settlement, in_batches


def test_a_batch_is_one_call_and_each_message_is_settled_for_itself(server: RedisServer) -> None:
    async def main() -> None:
        sizes: list[int] = []

        async def handle(batch: list[Delivery]) -> list[Settlement]:
            sizes.append(len(batch))
            ways = {"bury": Settlement.bury("no"), "snooze": Settlement.snooze(60)}
            return [ways.get(one.id, Settlement.ack()) for one in batch if one.id != "z"]

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("", id=id, delay=0.2) for id in ("bury", "snooze", *"abcdefg", "z"))
            worker = client.worker().queue(queue, in_batches(10, 0.1, handle), concurrency=2, retry=Retry.fixed(60))
            async with running(worker):
                await until(lambda: server.meta("q", "acked") == 7)
            assert sizes == [10]
            found = {id: await queue.get(id) for id in ("bury", "snooze", "z")}
            assert [one and (one.state, one.failures) for one in found.values()] == [
                ("dead", 0),
                ("scheduled", 0),
                ("scheduled", 1),
            ]
            assert found["z"] is not None
            assert found["z"].error.startswith("the handler of the batch returned 9 settlements")

    asyncio.run(main())


@pytest.mark.parametrize("blocking", [False, True])
def test_a_failure_retries_all_and_a_batch_of_one_is_closed_by_time(server: RedisServer, blocking: bool) -> None:
    async def main() -> None:
        sizes: list[int] = []

        def fail(batch: list[Delivery]) -> None:
            sizes.append(len(batch))
            if sizes == [3]:
                raise LookupError("no index")

        async def handle(batch: list[Delivery]) -> None:
            fail(batch)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("", id=id) for id in "abc")
            handler = in_batches(3, 0.05, fail if blocking else handle)
            async with running(client.worker().queue(queue, handler, retry=Retry.fixed(0.2))):
                await until(lambda: server.meta("q", "acked") == 3)
                assert server.meta("q", "retried") == 3
                await queue.push("", id="alone")
                await until(lambda: server.meta("q", "acked") == 4)
            assert sizes[0] == 3
            assert sizes[-1] == 1

    asyncio.run(main())


def test_no_more_batches_run_than_the_concurrency_and_a_stop_closes_the_open_one(server: RedisServer) -> None:
    async def main() -> None:
        running_now = most = 0

        async def handle(batch: list[Delivery]) -> None:
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            await asyncio.sleep(0.05)
            running_now -= 1

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("") for _ in range(40))
            worker = client.worker().queue(queue, in_batches(4, 10, handle), concurrency=2)
            async with running(worker):
                await until(lambda: server.meta("q", "acked") == 40)
                await queue.push("", id="last")
                await until(lambda: worker._consumers[0].running == 1)  # it waits in the open batch
            assert most == 2
            assert server.meta("q", "acked") == 41

    asyncio.run(main())


def test_a_message_that_crashed_its_worker_comes_alone(server: RedisServer) -> None:
    async def main() -> None:
        batches: list[list[str]] = []

        async def handle(batch: list[Delivery]) -> None:
            batches.append(sorted(one.id for one in batch))

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="crashed")
            granted = await queue.router.partition("-").call("claim", 1, b"t" * 16, 1)
            assert granted.body[2] == [b"crashed"]
            await queue.push_many(Message("", id=id, delay=0.3) for id in "ab")
            async with running(client.worker().queue(queue, in_batches(3, 0.2, handle))):
                await until(lambda: server.meta("q", "acked") == 3)
            assert sorted(batches) == [["a", "b"], ["crashed"]]

    asyncio.run(main())


def test_a_batch_without_a_message_or_with_a_long_linger_is_refused() -> None:
    async def main() -> None:
        async with dueq.connect("redis://127.0.0.1:1/") as client:
            with pytest.raises(DueqError, match="at least 1"):
                in_batches(0, 1, lambda batch: None)
            with pytest.raises(DueqError, match="a third of the lease"):
                client.worker().queue("q", in_batches(2, 11, lambda batch: None))

    asyncio.run(main())
