"""usage: program.py push QUEUE FILE | program.py work QUEUE     (REDIS_URL names the server)"""

import asyncio
import base64
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import dueq


async def push(queue: dueq.Queue, text: str) -> None:
    lines = [json.loads(line) for line in text.splitlines()]
    for at in range(0, len(lines), 500):
        pushes = [
            queue.push(
                base64.b64decode(line["payload_base64"]), id=base64.b64decode(line["id_base64"]), due=int(line["at"])
            )
            for line in lines[at : at + 500]
        ]
        for receipt in await asyncio.gather(*pushes):
            assert receipt.created, receipt


async def work(client: dueq.Client, queue: dueq.Queue, lease: float) -> None:
    async def record(delivery: dueq.Delivery) -> None:
        now = time.time_ns() // 1_000_000
        hash = hashlib.sha1(delivery.payload).hexdigest()
        # One write for each run, which a kill does not tear apart.
        os.write(1, f"{now} {delivery.id_bytes.hex()} {delivery.attempt} {hash}\n".encode())
        await asyncio.sleep(0.02)

    await client.worker().queue(queue, record, concurrency=32, lease=lease).run()


async def main(role: str, name: str, text: str = "") -> None:
    async with dueq.connect(os.environ["REDIS_URL"]) as client:
        if role == "push":
            await push(client.queue(name), text)
        else:
            await work(client, client.queue(name), int(os.environ["LEASE_MS"]) / 1_000)


asyncio.run(main(*sys.argv[1:3], *(Path(file).read_text() for file in sys.argv[3:])))
