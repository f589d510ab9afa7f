"""taskiq as dueq-bench drives it. README.md says how it is configured."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from protocol import Driver, run
from redis.asyncio import Redis
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker


class Taskiq(Driver):
    running = None

    async def open(self, name):
        # From the first message on, also of those that were pushed before the worker came.
        self.broker = RedisStreamBroker(self.server, queue_name=name, consumer_id="0")

        @self.broker.task(task_name="handle")
        async def handle(payload):
            self.sink.start(payload)

        self.handle = handle
        await self.broker.startup()

    async def push(self, message):
        due_ms, payload = message
        if due_ms is not None:
            raise ValueError("its broker has no due times: a scheduler process polls once a second")
        await self.handle.kiq(payload)

    async def work(self, concurrency):
        self.broker.is_worker_process = True
        receiver = Receiver(self.broker, ThreadPoolExecutor(), run_startup=False, max_async_tasks=concurrency)
        self.finish = asyncio.Event()
        self.running = asyncio.create_task(receiver.listen(self.finish))

    async def acked(self):
        """It acknowledges in the task that has run the handler: all are acknowledged when none is pending."""
        redis = Redis(connection_pool=self.broker.connection_pool)
        pending = await redis.xpending(self.broker.queue_name, self.broker.consumer_group_name)
        return self.sink.started - pending["pending"]

    async def close(self):
        if self.running is not None:
            # Its cancellation may hang.
            self.finish.set()
            await asyncio.wait([self.running])
            self.running = None
        await self.broker.shutdown()


run(Taskiq)
