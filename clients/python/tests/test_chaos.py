"""Processes of workers that are killed while the server is killed and its connections are cut."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from servers_for_tests import RedisServer
from test_consumer import until

import dueq
from dueq import Receipt

WORKER = """
import asyncio, os, sys, time, dueq
# One write for each run, which a kill does not tear apart.
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
async def handle(delivery):
    early = time.time() * 1_000 < delivery.due_ms
    os.write(log, f"{delivery.id} {delivery.attempt} {int(early)}\\n".encode())
    await asyncio.sleep(0.01)
async def main():
    async with dueq.connect(sys.argv[1]) as client:
        await client.worker().queue("q", handle, concurrency=8, lease=2).run()
asyncio.run(main())
"""
SECONDS = 12
SEED = 1


def test_kills_lose_nothing_and_double_nothing_without_a_lapsed_lease(server: RedisServer) -> None:
    chance = random.Random(SEED)
    environment = {"PYTHONPATH": str(Path(dueq.__file__).parents[1])}
    file, path = tempfile.mkstemp(prefix="dueq-py-")

    def spawn() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORKER, server.url, path]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    async def main() -> int:
        workers = [spawn() for _ in range(3)]
        pushed = 0
        try:
            async with dueq.connect(server.url) as client:
                queue = client.queue("q")
                end, next_fault = time.monotonic() + SECONDS, time.monotonic() + 2
                while time.monotonic() < end:
                    ids = [f"m{pushed + n}" for n in range(10)]
                    receipts = await asyncio.gather(*(queue.push("", id=id, delay=0.2) for id in ids))
                    assert all(isinstance(receipt, Receipt) for receipt in receipts)
                    pushed += 10
                    await asyncio.sleep(0.04)
                    if time.monotonic() < next_fault:
                        continue
                    next_fault = time.monotonic() + 1
                    match chance.choice(("worker", "worker", "server", "cut")):
                        case "worker":
                            at = chance.randrange(3)
                            workers[at].kill()
                            workers[at].wait()
                            workers[at] = spawn()
                        case "server":
                            server.kill()
                            await asyncio.to_thread(server.start)
                        case "cut":
                            server.client.execute_command("CLIENT", "KILL", "TYPE", "normal")
                # What a killed worker had comes back when its lease has run out.
                await until(lambda: server.meta("q", "acked") == pushed, 60)
                assert server.meta("q", "died") == 0
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        return pushed

    try:
        pushed = asyncio.run(main())
        runs = [line.split() for line in Path(path).read_text().splitlines()]
    finally:
        os.close(file)
        os.unlink(path)
    assert {id for id, _, _ in runs} == {f"m{n}" for n in range(pushed)}
    assert [run for run in runs if run[2] == "1"] == []
    # A second run of an id has another attempt: a crash was charged, because a lease had run out.
    twice = [pair for pair, count in Counter((id, attempt) for id, attempt, _ in runs).items() if count > 1]
    assert twice == []
