"""Queues of several partitions, on one server while their number changes, and on a cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers_for_tests import RedisServer
from test_consumer import LIMIT, running, until

import dueq
from dueq import CancelOutcome, Delivery, Message, PushOutcome, Settlement

ROOT = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("DUEQ_PROGRAM", ROOT / "target" / "debug" / "dueq"))


def change(url: str, queue: str, count: int) -> subprocess.Popen[bytes]:
    """Changes the partitions as an operator does, while the queue is used."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is missing: cargo build --package dueq-cli")
    command = [str(PROGRAM), "--redis", url, "partitions", queue, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


async def ended(operator: subprocess.Popen[bytes]) -> None:
    output, _ = await asyncio.to_thread(operator.communicate)
    assert operator.returncode == 0, output.decode()


def test_calls_find_their_message_while_the_partitions_change(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            ids = [f"m{n}" for n in range(300)]
            await queue.push_many(Message(id, id=id, delay=3_600) for id in ids)
            for count in (3, 2):
                operator = change(server.url, "q", count)
                while operator.poll() is None:
                    for id in ids[::30]:
                        again, stored = await asyncio.gather(queue.push("other", id=id, delay=60), queue.get(id))
                        assert again.outcome is PushOutcome.EXISTS
                        assert stored is not None
                        assert stored.payload == id.encode()
                await ended(operator)
            cancelled = await asyncio.gather(*(queue.cancel(id) for id in ids))
            assert set(cancelled) == {CancelOutcome.CANCELLED}
            many = await queue.push_many(Message("", id=id, delay=3_600) for id in ids)
            assert all(isinstance(receipt, dueq.Receipt) and receipt.created for receipt in many)

    asyncio.run(main())


def test_a_worker_follows_the_map_and_handles_each_message_once(server: RedisServer) -> None:
    async def main() -> None:
        runs: Counter[str] = Counter()

        async def handle(delivery: Delivery) -> Settlement | None:
            runs[delivery.id] += 1
            if "/" in delivery.id:
                return None
            return Settlement.ack_and([Message("")])

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            async with running(client.worker().queue(queue, handle, concurrency=8)):
                await queue.push_many(Message("", id=f"a{n}", delay=n / 100) for n in range(300))
                operator = change(server.url, "q", 3)
                sent = 0
                while operator.poll() is None:
                    await queue.push("", id=f"b{sent}", delay=0.1)
                    sent += 1
                    await asyncio.sleep(0.02)
                await ended(operator)
                await until(lambda: len(runs) == 2 * (300 + sent))
            assert set(runs.values()) == {1}

    asyncio.run(main())


@pytest.fixture
def cluster() -> Iterator[list[RedisServer]]:
    servers = [RedisServer("--cluster-enabled", "yes") for _ in range(3)]
    for number, server in enumerate(servers):
        redis = server.client
        redis.execute_command("CLUSTER", "ADDSLOTSRANGE", number * 5_461, number * 5_461 + 5_460 + (number == 2))
        redis.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    yield servers
    for server in servers:
        server.close()


def test_a_cluster_is_served_also_while_a_slot_moves(cluster: list[RedisServer]) -> None:
    async def main() -> None:
        runs: Counter[str] = Counter()

        async def handle(delivery: Delivery) -> None:
            runs[delivery.id] += 1

        url = f"redis+cluster://127.0.0.1:{cluster[0].port},127.0.0.1:{cluster[1].port}"
        await until(lambda: all(is_ready(server) for server in cluster))
        names = [f"q{n}" for n in range(6)]
        async with dueq.connect(url) as client:
            worker = client.worker()
            for name in names:
                worker.queue(name, handle)
            async with running(worker):
                for name in names:
                    await client.queue(name).push_many(Message("", id=f"{name}:{n}", delay=n / 50) for n in range(100))
                move(cluster, "q0")
                await client.queue("q0").push("", id="q0:after", delay=0.1)
                await until(lambda: len(runs) == 601)
            assert set(runs.values()) == {1}

    asyncio.run(main())


def test_the_url_of_one_node_serves_its_whole_cluster(cluster: list[RedisServer]) -> None:
    async def main() -> None:
        await until(lambda: all(is_ready(server) for server in cluster))
        ran = asyncio.Semaphore(0)

        async def handle(delivery: Delivery) -> None:
            ran.release()

        async with dueq.connect(cluster[1].url) as client:
            queues = [client.queue(f"q{n}") for n in range(6)]
            worker = client.worker()
            for queue in queues:
                worker.queue(queue, handle)
                await queue.push("x", id="a", delay=0.1)
            async with running(worker):
                for _ in queues:
                    await asyncio.wait_for(ran.acquire(), LIMIT)
        assert all(server.calls("evalsha") for server in cluster)
        async with dueq.connect(cluster[1].url + "1") as client:
            with pytest.raises(dueq.DueqError) as caught:
                await client.queue("q").push("")
            assert caught.value.applied is dueq.Applied.NO

    asyncio.run(main())


def is_ready(server: RedisServer) -> bool:
    state = server.client.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in state and b"known_nodes:3" in state


def move(cluster: list[RedisServer], queue: str) -> None:
    """Moves the slot of a queue to another master, key by key."""
    redis = [server.client for server in cluster]
    slot = redis[0].execute_command("CLUSTER", "KEYSLOT", f"{{{queue}}}")
    ids = [one.execute_command("CLUSTER", "MYID").decode() for one in redis]
    owner = next(at for at in range(3) if at * 5_461 <= slot <= at * 5_461 + 5_460)
    target = (owner + 1) % 3
    redis[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner])
    redis[owner].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    while keys := redis[owner].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        for key in keys:
            redis[owner].execute_command("MIGRATE", "127.0.0.1", cluster[target].port, key, 0, 5_000)
    for one in redis:
        one.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
