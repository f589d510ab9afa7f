"""Workers against a real server: settlements, leases, and faults."""

from __future__ import annotations

import asyncio
import hashlib
import math
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from servers_for_tests import Proxy, RedisServer

import dueq
from dueq import Client, Delivery, DueqError, Message, MessageState, Retry, Settlement, Worker
from dueq._scripts import SCRIPTS

LIMIT = 30


@asynccontextmanager
async def running(worker: Worker, grace: float = 5) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run(grace=grace))
    try:
        yield
    finally:
        worker.stop()
        async with asyncio.timeout(LIMIT):
            await task


async def until(holds: object, limit: float = LIMIT) -> None:
    """Waits until a condition holds that no event tells of."""
    end = time.monotonic() + limit
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition does not become true"
        await asyncio.sleep(0.005)


async def lateness_now(server: RedisServer, delays: list[float]) -> float:
    """The median of how late a call behind a timer is answered on this machine now, in milliseconds.

    A bound adds it some times: a busy machine is no fault of the library, and a poll would be later all the same.
    """

    async def one(delay: float) -> float:
        due = time.monotonic() + delay
        await asyncio.sleep(delay)
        await asyncio.to_thread(server.client.ping)
        return (time.monotonic() - due) * 1_000

    return statistics.median(await asyncio.gather(*(one(delay) for delay in delays)))


def test_messages_are_handled_on_time_and_none_early(server: RedisServer) -> None:
    async def main() -> None:
        late: list[float] = []

        async def handle(delivery: Delivery) -> None:
            late.append(time.time() * 1_000 - delivery.due_ms)
            assert delivery.payload == delivery.id.encode()

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            async with running(client.worker().queue(queue, handle)):
                delays = [0.2 + n / 50 for n in range(50)]
                await queue.push_many(Message(f"m{n}", id=f"m{n}", delay=delay) for n, delay in enumerate(delays))
                machine = await lateness_now(server, delays)
                await until(lambda: server.meta("q", "acked") == 50)
        assert min(late) >= 0
        assert statistics.median(late) < 100 + 8 * machine  # a poll would be later

    asyncio.run(main())


def test_each_settlement_does_what_it_says(server: RedisServer) -> None:
    async def main() -> None:
        seen: Counter[str] = Counter()

        async def handle(delivery: Delivery) -> Settlement | str | None:
            seen[delivery.id] += 1
            if seen[delivery.id] > 1:
                return None
            match delivery.id:
                case "bury":
                    return Settlement.bury("why not")
                case "snooze":
                    return Settlement.snooze(60)
                case "again":
                    return Settlement.again(60)
                case "release":
                    return Settlement.release()
                case "fail":
                    raise ValueError("no such order")
                case "exit":
                    sys.exit(3)
                case "follow":
                    return Settlement.ack_and([Message("one", delay=60), Message("two", id="own", delay=60)])
                case "too long":
                    return Settlement.snooze(200 * 365 * 86_400)
            return "any other value is an ack"

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            ids = ["bury", "snooze", "again", "release", "fail", "exit", "follow", "too long", "plain"]
            await queue.push_many(Message("", id=id) for id in ids)
            async with running(client.worker().queue(queue, handle, retry=Retry.fixed(60))):
                await until(lambda: server.meta("q", "claimed") == 10 and server.meta("q", "acked") == 3)
            for id, state, error in [
                ("bury", MessageState.DEAD, "why not"),
                ("snooze", MessageState.SCHEDULED, ""),
                ("again", MessageState.SCHEDULED, ""),
                ("fail", MessageState.SCHEDULED, "ValueError: no such order"),
                ("exit", MessageState.SCHEDULED, "SystemExit: 3"),
                ("{follow}/1", MessageState.SCHEDULED, ""),
                ("own", MessageState.SCHEDULED, ""),
            ]:
                stored = await queue.get(id)
                assert stored is not None, id
                assert (stored.state, stored.error, stored.failures) == (state, error, int(id in ("fail", "exit"))), id
            long = await queue.get("too long")
            assert long is not None
            assert long.failures == 1
            assert "delay" in long.error

    asyncio.run(main())


def test_failures_are_retried_with_backoff_until_the_limit(server: RedisServer) -> None:
    async def main() -> None:
        tries: list[tuple[int, bool, float]] = []

        async def handle(delivery: Delivery) -> None:
            tries.append((delivery.attempt, delivery.is_last_attempt, time.monotonic()))
            raise RuntimeError

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="a", max_attempts=3)
            async with running(client.worker().queue(queue, handle, retry=Retry.fixed(0.1))):
                await until(lambda: server.meta("q", "died") == 1)
            assert [(attempt, last) for attempt, last, _ in tries] == [(1, False), (2, False), (3, True)]
            assert all(later[2] - earlier[2] >= 0.1 for earlier, later in pairwise(tries))

    asyncio.run(main())


def test_a_throttled_queue_starts_nothing_until_it_opens(server: RedisServer) -> None:
    async def main() -> None:
        starts: list[float] = []

        async def handle(delivery: Delivery) -> Settlement | None:
            starts.append(time.monotonic())
            return Settlement.throttle(0.3) if len(starts) == 1 else None

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("", id=f"m{n}") for n in range(5))
            async with running(client.worker().queue(queue, handle, concurrency=1)):
                await until(lambda: server.meta("q", "acked") == 5)
            assert starts[1] - starts[0] >= 0.29

    asyncio.run(main())


def test_blocking_handlers_run_in_threads_beside_each_other(server: RedisServer) -> None:
    async def main() -> None:
        both = threading.Barrier(2, timeout=10)

        def handle(delivery: Delivery) -> None:
            both.wait()

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many([Message(""), Message("")])
            async with running(client.worker().queue(queue, handle, concurrency=2)):
                await until(lambda: server.meta("q", "acked") == 2)
            with pytest.raises(DueqError, match="needs an async handler"):
                client.worker().queue(queue, handle, time_limit=1)

    asyncio.run(main())


def test_a_long_handler_keeps_its_lease(server: RedisServer) -> None:
    async def main() -> None:
        async def handle(delivery: Delivery) -> None:
            await asyncio.sleep(1.5)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="a")
            async with running(client.worker().queue(queue, handle, lease=0.6)):
                await until(lambda: server.meta("q", "acked") == 1)
            assert server.meta("q", "claimed") == 1

    asyncio.run(main())


def test_a_settlement_that_is_denied_for_a_moment_is_repeated(server: RedisServer) -> None:
    async def main() -> None:
        redis = server.client

        def denied() -> int:
            return int(redis.info("errorstats").get("errorstat_NOPERM", {"count": 0})["count"])

        def handle(delivery: Delivery) -> None:
            redis.execute_command("ACL", "SETUSER", "worker", "-evalsha", "-eval")

        redis.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all")
        async with dueq.connect(server.url.replace("//", "//worker:secret@")) as client:
            queue = client.queue("q")
            await queue.push("", id="a")
            async with running(client.worker().queue(queue, handle, lease=20)):
                await until(lambda: denied() >= 10)
                redis.execute_command("ACL", "SETUSER", "worker", "+evalsha", "+eval")
                await until(lambda: server.meta("q", "acked") == 1)
            assert server.meta("q", "claimed") == 1

    asyncio.run(main())


def test_a_handler_whose_lease_is_ended_is_cancelled_and_settles_nothing(server: RedisServer) -> None:
    async def main() -> None:
        cancelled: asyncio.Queue[bool] = asyncio.Queue()

        async def handle(delivery: Delivery) -> None:
            if delivery.attempt > 1:
                return
            name = hashlib.sha1(delivery.token).hexdigest()[:16]
            ended = await client.queue("q").router.partition("-").call("reap", "ids", "a", name)
            assert ended.body[0][0].startswith(b"SCHEDULED")
            try:
                await asyncio.sleep(30)
            finally:
                cancelled.put_nowait(delivery.is_lost)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="a")
            async with running(client.worker().queue(queue, handle, lease=0.6)):
                assert await cancelled.get() is True
                await until(lambda: server.meta("q", "acked") == 1)
            assert server.meta("q", "claimed") == 2

    asyncio.run(main())


def test_a_grant_whose_reply_is_lost_is_found_by_held(server: RedisServer) -> None:
    async def main() -> None:
        async def handle(delivery: Delivery) -> None:
            assert delivery.attempt == 1

        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client:
            queue = client.queue("q")
            async with running(client.worker().queue(queue, handle, lease=20)):
                await queue.push("", id="first")
                await until(lambda: server.meta("q", "acked") == 1)
                proxy.lose(lambda data: SCRIPTS["claim"][0].encode() in data)
                await queue.push("", id="a", delay=0.2)
                await proxy.lost.wait()
                await until(lambda: server.meta("q", "acked") == 2, 10)
            assert server.meta("q", "claimed") == 2

    asyncio.run(main())


def test_an_ack_whose_reply_is_lost_is_repeated(server: RedisServer) -> None:
    async def main() -> None:
        runs: list[str] = []

        async def handle(delivery: Delivery) -> None:
            runs.append(delivery.id)

        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client:
            queue = client.queue("q")
            proxy_loses = SCRIPTS["ack"][0].encode()
            async with running(client.worker().queue(queue, handle, lease=1)):
                await queue.push("", id="first")
                await until(lambda: server.meta("q", "acked") == 1)
                proxy.lose(lambda data: proxy_loses in data)
                await queue.push("", id="a")
                await proxy.lost.wait()
                await asyncio.sleep(2)  # longer than the lease: a second delivery would have come
            assert runs == ["first", "a"]

    asyncio.run(main())


def test_faults_of_the_server_lose_and_double_nothing(server: RedisServer) -> None:
    """Kills, freezes and cut connections while 600 messages become due."""

    async def main() -> None:
        runs: Counter[str] = Counter()

        async def handle(delivery: Delivery) -> None:
            assert time.time() * 1_000 >= delivery.due_ms
            runs[delivery.id] += 1

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            async with running(client.worker().queue(queue, handle, lease=20)):
                wanted = 600
                pushed = await queue.push_many(Message("", id=f"m{n}", delay=n / 100) for n in range(wanted))
                assert all(isinstance(receipt, dueq.Receipt) for receipt in pushed)
                for fault in ("cut", "kill", "freeze", "cut", "kill"):
                    await asyncio.sleep(0.8)
                    if fault == "cut":
                        for kind in ("normal", "pubsub"):
                            server.client.execute_command("CLIENT", "KILL", "TYPE", kind)
                    elif fault == "kill":
                        server.kill()
                        await asyncio.to_thread(server.start)
                    else:
                        server.signal(signal.SIGSTOP)
                        await asyncio.sleep(1)
                        server.signal(signal.SIGCONT)
                await until(lambda: len(runs) == wanted)
            assert set(runs.values()) == {1}
            found = server.client.zcard("dueq:{q}:leases"), server.client.zcard("dueq:{q}:scheduled")
            assert found == (1, 1)  # the placeholders

    asyncio.run(main())


WORKER = """
import asyncio, sys, dueq
async def handle(delivery):
    print(delivery.id, delivery.attempt, delivery.crashes, flush=True)
    await asyncio.sleep(60)
async def main():
    async with dueq.connect(sys.argv[1]) as client:
        await client.worker().queue("q", handle, lease=1).run()
asyncio.run(main())
"""


def test_the_message_of_a_killed_worker_comes_back(server: RedisServer) -> None:
    async def main() -> None:
        seen: asyncio.Queue[Delivery] = asyncio.Queue()

        async def handle(delivery: Delivery) -> None:
            seen.put_nowait(delivery)

        environment = {"PYTHONPATH": str(Path(dueq.__file__).parents[1])}
        command = [sys.executable, "-c", WORKER, server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as other:  # noqa: ASYNC220
            async with dueq.connect(server.url) as client:
                queue = client.queue("q")
                await queue.push("", id="a")
                assert other.stdout is not None
                assert await asyncio.to_thread(other.stdout.readline) == b"a 1 0\n"
                async with running(client.worker().queue(queue, handle)):
                    other.kill()
                    killed = time.monotonic()
                    delivery = await asyncio.wait_for(seen.get(), LIMIT)
                    assert time.monotonic() - killed < 8
                    assert (delivery.attempt, delivery.crashes) == (2, 1)
                    await until(lambda: server.meta("q", "acked") == 1)

    asyncio.run(main())


def test_stopping_ends_handlers_and_releases_what_does_not_end(server: RedisServer) -> None:
    async def main() -> None:
        began = asyncio.Semaphore(0)

        async def handle(delivery: Delivery) -> None:
            began.release()
            await asyncio.sleep({"short": 0.2, "long": 60}.get(delivery.id, 0))
            if delivery.id == "stubborn":
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        began.release()

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("", id=id) for id in ("short", "long", "stubborn"))
            async with running(client.worker().queue(queue, handle), grace=0.5):
                for _ in range(3):
                    await began.acquire()
                stopped = time.monotonic()
            assert time.monotonic() - stopped < 5
            assert await queue.get("short") is None
            for id in ("long", "stubborn"):
                stored = await queue.get(id)
                assert stored is not None
                assert (stored.state, stored.failures, stored.crashes) == (MessageState.SCHEDULED, 0, 0)
            assert server.client.zcard("dueq:{q}:nodes") == 1
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.get_coro().close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


def test_a_cancelled_run_stops_gracefully(server: RedisServer) -> None:
    async def main() -> None:
        async def handle(delivery: Delivery) -> None:
            run.cancel()
            await asyncio.sleep(0.2)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="a")
            worker = client.worker().queue(queue, handle)
            run = asyncio.create_task(worker.run())
            with pytest.raises(asyncio.CancelledError):
                await run
            assert server.meta("q", "acked") == 1
            with pytest.raises(DueqError, match="has run"):
                await worker.run()

    asyncio.run(main())


def test_a_busy_queue_does_not_delay_another(server: RedisServer) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def slow(delivery: Delivery) -> None:
            await asyncio.sleep(30)

        async def quick(delivery: Delivery) -> None:
            done.set()

        async with dueq.connect(server.url) as client:
            await client.queue("slow").push_many(Message("") for _ in range(50))
            worker = client.worker().queue("slow", slow, concurrency=4).queue("quick", quick, concurrency=1)
            async with running(worker, grace=0):
                await until(lambda: server.meta("slow", "claimed") == 4)
                await client.queue("quick").push("")
                await asyncio.wait_for(done.wait(), 5)

    asyncio.run(main())


def test_a_worker_with_a_backlog_waits_for_no_wake_up_token(server: RedisServer) -> None:
    async def main() -> None:
        async def handle(delivery: Delivery) -> None:
            pass

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push_many(Message("") for _ in range(5_000))
            async with running(client.worker().queue(queue, handle, concurrency=50)):
                await until(lambda: server.meta("q", "acked") == 5_000)
                # Two tokens are there when the worker begins and when it ends.
                assert server.calls("blpop") <= 10

    asyncio.run(main())


def test_an_idle_worker_only_beats_and_waits(server: RedisServer) -> None:
    async def main() -> None:
        async def handle(delivery: Delivery) -> None:
            pass

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", delay=3_600)
            async with running(client.worker().queue(queue, handle)):
                await asyncio.sleep(1)
                calls, pops, began = server.calls("evalsha"), server.calls("blpop"), time.monotonic()
                await queue.push("", delay=2)
                await asyncio.sleep(3)
                calls, pops = server.calls("evalsha") - calls, server.calls("blpop") - pops
                seconds = time.monotonic() - began
                # A beat each 0.9 s; the push, and when it is due, its claim, a last one, and its ack. A busy machine
                # estimates the server's clock worse, and so claims too early some times, not hundreds of times.
                assert calls <= math.ceil(seconds / 0.9) + 15
                assert pops <= math.ceil(seconds) + 3

    asyncio.run(main())


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_makes_nothing_early_or_late(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    real, off = time.time, hours * 3_600
    monkeypatch.setattr("time.time", lambda: real() + off)
    monkeypatch.setattr("time.time_ns", lambda: int((real() + off) * 1e9))

    async def main() -> None:
        late: asyncio.Queue[float] = asyncio.Queue()

        async def handle(delivery: Delivery) -> None:
            late.put_nowait(real() - delivery.due_ms / 1_000)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            worker = client.worker().queue(queue, handle)
            async with running(worker):
                await queue.push("", delay=0.3)
                assert 0 <= await asyncio.wait_for(late.get(), LIMIT) < 30
                with pytest.raises(DueqError, match="make a new one"):
                    await worker.run()

    asyncio.run(main())


def test_two_workers_share_the_messages_and_take_over(server: RedisServer) -> None:
    async def main() -> None:
        by: Counter[str] = Counter()
        clients: list[Client] = [dueq.connect(server.url) for _ in range(2)]

        def worker(name: str, client: Client) -> Worker:
            async def handle(delivery: Delivery) -> None:
                by[name] += 1
                await asyncio.sleep(0.01)

            return client.worker().queue("q", handle, concurrency=4)

        async with clients[0] as one, clients[1] as two, running(worker("one", one)):
            async with running(worker("two", two)):
                await one.queue("q").push_many(Message("", delay=0.1 + n / 400) for n in range(400))
                await until(lambda: server.meta("q", "acked") == 400)
            assert min(by["one"], by["two"]) > 20
            began = time.monotonic()
            await one.queue("q").push("", delay=0.2)
            await until(lambda: server.meta("q", "acked") == 401)
            assert time.monotonic() - began < 2

    asyncio.run(main())
