"""arq as dueq-bench drives it. README.md says how it is configured."""

import asyncio
from datetime import datetime, timezone

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from protocol import Driver, run

# How often it looks for what is due; the default is 500 ms.
POLL_S = 0.01


class Arq(Driver):
    worker = None

    async def open(self, name):
        self.name = name
        self.settings = RedisSettings.from_dsn(self.server.rstrip("/"))
        self.pool = await create_pool(self.settings)

    async def push(self, message):
        due_ms, payload = message
        when = {} if due_ms is None else {"_defer_until": datetime.fromtimestamp(due_ms / 1000, timezone.utc)}
        await self.pool.enqueue_job("handle", payload, _queue_name=self.name, **when)

    async def handle(self, _context, payload):
        self.sink.start(payload)

    async def acknowledged(self, _context):
        self.sink.acknowledge()

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

    async def close(self):
        if self.worker is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
            await self.worker.close()
            self.worker = None
        await self.pool.aclose()


run(Arq)
