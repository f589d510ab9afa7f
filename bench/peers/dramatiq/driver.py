"""dramatiq as dueq-bench drives it. README.md says how it is configured."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.worker import Worker
from protocol import Driver, run


class Acknowledgements(dramatiq.Middleware):
    def __init__(self, sink):
        self.sink = sink

    def after_ack(self, broker, message):
        # Of a delayed message it also acknowledges the step from the delay queue to the queue.
        if not message.queue_name.endswith(".DQ"):
            self.sink.acknowledge()


class Dramatiq(Driver):
    CONCURRENCY = 8
    worker = None
    pushers = ThreadPoolExecutor(32)

    async def open(self, name):
        self.broker = RedisBroker(url=self.server, middleware=[Acknowledgements(self.sink)])
        self.handle = dramatiq.actor(self.sink.start, broker=self.broker, queue_name=name, actor_name="handle")

    async def push(self, message):
        due_ms, payload = message
        send = self.handle.message_with_options(args=(payload,))
        delay = None if due_ms is None else max(0, due_ms - int(time.time() * 1000))
        await asyncio.get_running_loop().run_in_executor(self.pushers, lambda: self.broker.enqueue(send, delay=delay))

    async def work(self, concurrency):
        self.worker = Worker(self.broker, worker_threads=concurrency)
        self.worker.start()

    async def close(self):
        if self.worker is not None:
            await asyncio.to_thread(self.worker.stop)
            self.worker = None
        self.broker.close()


run(Dramatiq)
