"""What the drivers in Python have in common: the line protocol of bench/README.md, the payloads, the counting."""

import asyncio
import json
import logging
import sys
import time

PAYLOAD_BYTES = 100
DIGITS = 13


def unix_us():
    return time.time_ns() // 1000


def due_of(due, i, n):
    """When message i of n is due, in Unix milliseconds; None for at once."""
    if not due["at_ms"]:
        return None
    place = {"forward": i, "backward": n - 1 - i, "shuffled": i * 7_368_787 % n}[due.get("order", "forward")]
    return due["at_ms"] + place * due["spread_ms"] // n


def message(due_ms):
    """A due time and a payload, which begins with it."""
    return due_ms, str(due_ms if due_ms is not None else unix_us() // 1000).zfill(DIGITS).ljust(PAYLOAD_BYTES, "x")


class Sink:
    """Where handlers report."""

    def __init__(self):
        self.started = self.acked = 0
        self.late_us = []

    def start(self, payload):
        self.late_us.append(unix_us() - int(payload[:DIGITS]) * 1000)
        self.started += 1

    def acknowledge(self):
        self.acked += 1


class Driver:
    """A system overrides what is its own. BATCH messages are one call of `push_many`, so many calls at a time."""

    BATCH = 1
    IN_FLIGHT = 32
    CONCURRENCY = 100

    def __init__(self, server):
        self.server = server
        self.sink = Sink()

    async def open(self, name):
        raise NotImplementedError

    async def push(self, message):
        raise NotImplementedError

    async def push_many(self, messages):
        """Without a call for many, a batch of one is what it can do."""
        for one in messages:
            await self.push(one)

    async def work(self, concurrency):
        raise NotImplementedError

    async def acked(self):
        """How many messages are acknowledged."""
        return self.sink.acked

    async def close(self):
        raise NotImplementedError

    async def share_out(self, n, tasks, one):
        async def task(first):
            for i in range(first, n, tasks):
                await one(i)

        await asyncio.gather(*(task(first) for first in range(tasks)))

    async def bulk(self, n, batch, due):
        size = batch if batch and self.BATCH > 1 else self.BATCH

        async def one(at):
            await self.push_many([message(due_of(due, i, n)) for i in range(at * size, min(n, (at + 1) * size))])

        alone = batch and self.BATCH > 1
        await self.share_out(-(-n // size), 1 if alone else self.IN_FLIGHT, one)

    async def pace(self, n, per_s, delay_ms):
        start = unix_us()
        pushes = []
        for i in range(n):
            wait_us = start + i * 1_000_000 // per_s - unix_us()
            if wait_us > 0:
                await asyncio.sleep(wait_us / 1e6)
            pushes.append(asyncio.create_task(self.push(message(unix_us() // 1000 + delay_ms + i * 7_919 % 97))))
        await asyncio.gather(*pushes)

    async def drain(self, n, limit_ms):
        limit = time.monotonic() + limit_ms / 1000
        while (self.sink.started < n or await self.acked() < n) and time.monotonic() < limit:
            await asyncio.sleep(0.001)

    async def answer(self, request):
        reply = {"from_us": unix_us(), "n": request.get("n", 0)}
        match request["do"]:
            case "open":
                self.sink = Sink()
                await self.open(request["queue"])
            case "push":
                n, due = request["n"], request["due"]
                await self.share_out(n, request["concurrency"], lambda i: self.push(message(due_of(due, i, n))))
            case "bulk":
                await self.bulk(request["n"], request["batch"], request["due"])
            case "pace":
                await self.pace(request["n"], request["per_s"], request["delay_ms"])
            case "work":
                await self.work(request["concurrency"] or self.CONCURRENCY)
            case "drain":
                await self.drain(request["n"], request["limit_ms"])
                reply["n"] = self.sink.started
                if request["late"]:
                    reply["late_us"], self.sink.late_us = self.sink.late_us, []
            case "close":
                await self.close()
            case other:
                raise ValueError(f"not a request: {other}")
        reply["to_us"] = unix_us()
        return reply


async def _run(driver):
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            reply = await driver.answer(json.loads(line))
        except Exception as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), flush=True)


def run(system):
    """Answers requests until the input ends."""
    logging.disable()
    asyncio.run(_run(system(sys.argv[1])))
