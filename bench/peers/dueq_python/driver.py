"""clients/python as dueq-bench drives it. README.md says how it is configured."""

import asyncio

import dueq
from redis.asyncio import Redis
from protocol import Driver, run


def made(message):
    due_ms, payload = message
    return dueq.Message(payload, due=due_ms) if due_ms is not None else dueq.Message(payload)


class Dueq(Driver):
    BATCH = 1_000
    IN_FLIGHT = 4
    CONCURRENCY = 512
    worker = None

    async def open(self, name):
        self.client = dueq.connect(self.server)
        self.queue = self.client.queue(name)
        self.redis = Redis.from_url(self.server)

    async def push(self, message):
        receipt = await self.queue.push_message(made(message))
        assert receipt.created, receipt

    async def push_many(self, messages):
        for receipt in await self.queue.push_many([made(message) for message in messages]):
            assert isinstance(receipt, dueq.Receipt) and receipt.created, receipt

    async def handle(self, delivery):
        self.sink.start(delivery.payload)

    async def work(self, concurrency):
        self.worker = self.client.worker().queue(self.queue, self.handle, concurrency=concurrency)
        self.running = asyncio.create_task(self.worker.run())

    async def acked(self):
        return int(await self.redis.hget(f"dueq:{{{self.queue.name}}}:meta", "acked") or 0)

    async def close(self):
        if self.worker is not None:
            self.worker.stop()
            await self.running
            self.worker = None
        await self.client.close()
        await self.redis.aclose()


run(Dueq)
