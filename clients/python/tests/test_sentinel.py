"""A master that Sentinels replace."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from servers_for_tests import PROGRAM, RedisServer, free_port
from test_consumer import running, until

import dueq
from dueq import Delivery, Message


@contextmanager
def sentinel(master: RedisServer) -> Iterator[int]:
    folder, port = Path(tempfile.mkdtemp(prefix="dueq-py-")), free_port()
    (folder / "conf").write_text(
        f"port {port}\nsentinel monitor orders 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds orders 500\nsentinel failover-timeout orders 3000\n"
    )
    command = [PROGRAM, str(folder / "conf"), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def knows_replica(port: int) -> bool:
    watch: Any = redis.Redis(port=port)
    try:
        return len(watch.sentinel_slaves("orders")) == 1
    except redis.ConnectionError:  # it is starting
        return False


def test_calls_and_workers_follow_a_failover(server: RedisServer) -> None:
    async def main() -> None:
        runs: Counter[str] = Counter()

        async def handle(delivery: Delivery) -> None:
            runs[delivery.id] += 1

        replica = server.replica()
        try:
            with sentinel(server) as port:
                await until(lambda: knows_replica(port))
                async with dueq.connect(f"redis+sentinel://127.0.0.1:{port}/orders") as client:
                    queue = client.queue("q")
                    async with running(client.worker().queue(queue, handle)):
                        await queue.push("", id="before")
                        await until(lambda: runs["before"] == 1)
                        # Pushed and replicated before the kill: no failover loses them.
                        await queue.push_many(Message("", id=f"m{n}", delay=0.5 + n / 50) for n in range(100))
                        # WAIT counts the replicas that have the last write of its own connection.
                        with server.client.client() as one:
                            one.set("last", "")
                            assert one.wait(1, 2_000) == 1
                        server.kill()
                        await queue.push("", id="after", delay=0.1)
                        await until(lambda: len(runs) == 102)
        finally:
            replica.close()

    asyncio.run(main())
