"""arq as dueq-bench drives it. README.md says how it is configured."""

import asyncio
import json
import logging
import sys
import time
from datetime import datetime, timezone

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

PAYLOAD_BYTES = 100
DIGITS = 13
# It has no call for many: so many single ones at a time.
IN_FLIGHT = 32
CONCURRENCY = 100
# How often it looks for what is due; the default is 500 ms.
POLL_S = 0.01


def unix_us():
    return time.time_ns() // 1000


def due_of(due, i, n):
    """When message i of n is due, in Unix milliseconds; None for at once."""
    if not due["at_ms"]:
        return None
    place = {"forward": i, "backward": n - 1 - i, "shuffled": i * 7_368_787 % n}[due.get("order", "forward")]
    return due["at_ms"] + place * due["spread_ms"] // n


class Driver:
    def __init__(self, server):
        self.settings = RedisSettings.from_dsn(server.rstrip("/"))
        self.name = None
        self.pool = None
        self.worker = None
        self.running = None
        self.started = 0
        self.acked = 0
        self.late_us = []

    async def open(self, name):
        self.name = name
        self.pool = await create_pool(self.settings)
        self.started = self.acked = 0
        self.late_us = []

    async def push(self, due_ms):
        shown = due_ms if due_ms is not None else unix_us() // 1000
        payload = str(shown).zfill(DIGITS).ljust(PAYLOAD_BYTES, "x")
        when = {} if due_ms is None else {"_defer_until": datetime.fromtimestamp(due_ms / 1000, timezone.utc)}
        await self.pool.enqueue_job("handle", payload, _queue_name=self.name, **when)

    async def share_out(self, n, tasks, due):
        async def task(first):
            for i in range(first, n, tasks):
                await self.push(due_of(due, i, n))

        await asyncio.gather(*(task(first) for first in range(tasks)))

    async def pace(self, n, per_s, delay_ms):
        start = unix_us()
        pushes = []
        for i in range(n):
            wait_us = start + i * 1_000_000 // per_s - unix_us()
            if wait_us > 0:
                await asyncio.sleep(wait_us / 1e6)
            pushes.append(asyncio.create_task(self.push(unix_us() // 1000 + delay_ms + i * 7_919 % 97)))
        await asyncio.gather(*pushes)

    async def handle(self, _context, payload):
        self.late_us.append(unix_us() - int(payload[:DIGITS]) * 1000)
        self.started += 1

    async def acknowledged(self, _context):
        self.acked += 1

    async def work(self, concurrency):
        self.worker = Worker(
            [func(self.handle, name="handle", keep_result=0)],
            queue_name=self.name,
            redis_pool=await create_pool(self.settings),
            max_jobs=concurrency,
            poll_delay=POLL_S,
            handle_signals=False,
            log_results=False,
            after_job_end=self.acknowledged,
        )
        self.running = asyncio.create_task(self.worker.async_run())

    async def drain(self, n, limit_ms):
        limit = time.monotonic() + limit_ms / 1000
        while self.acked < n and time.monotonic() < limit:
            await asyncio.sleep(0.001)

    async def close(self):
        if self.worker is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
            await self.worker.close()
            self.worker = None
        await self.pool.aclose()

    async def answer(self, request):
        reply = {"from_us": unix_us(), "n": request.get("n", 0)}
        match request["do"]:
            case "open":
                await self.open(request["queue"])
            case "push":
                await self.share_out(request["n"], request["concurrency"], request["due"])
            case "bulk":
                await self.share_out(request["n"], IN_FLIGHT, request["due"])
            case "pace":
                await self.pace(request["n"], request["per_s"], request["delay_ms"])
            case "work":
                await self.work(request["concurrency"] or CONCURRENCY)
            case "drain":
                await self.drain(request["n"], request["limit_ms"])
                reply["n"] = self.acked
                if request["late"]:
                    reply["late_us"], self.late_us = self.late_us, []
            case "close":
                await self.close()
            case other:
                raise ValueError(f"not a request: {other}")
        reply["to_us"] = unix_us()
        return reply


async def main():
    logging.disable()
    driver = Driver(sys.argv[1])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            reply = await driver.answer(json.loads(line))
        except Exception as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), flush=True)


asyncio.run(main())
