"""The blocking facade: threads, forks, and a client that is closed."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from servers_for_tests import RedisServer

from dueq import Applied, Delivery, DueqError, ErrorKind, Message, PushOutcome, Settlement, blocking


def test_threads_share_a_client_and_its_calls(server: RedisServer) -> None:
    with blocking.Client(server.url) as client, ThreadPoolExecutor(20) as threads:
        queue = client.queue("q")
        receipts = list(threads.map(lambda n: queue.push("x", id=f"m{n}", delay=60), range(500)))
        assert all(receipt.created for receipt in receipts)
        assert server.calls("evalsha") < 300
        assert queue.push("y", id="m1").outcome is PushOutcome.EXISTS
        assert queue.reschedule("m1", delay=5).outcome == "moved"
        assert queue.run_now("m2") == "moved"
        stored = queue.get("m3")
        assert stored is not None
        assert stored.payload == b"x"
        assert queue.cancel("m3") == "cancelled"
        end = queue.end_of("m3")
        assert end is not None
        assert end.kind == "cancelled"
        assert all(not isinstance(one, DueqError) for one in queue.push_many([Message("a"), Message("b")]))


def test_a_worker_handles_messages_until_it_is_stopped(server: RedisServer) -> None:
    seen: list[str] = []
    with blocking.Client(server.url) as client:
        worker = client.worker()

        def handle(delivery: Delivery) -> Settlement | None:
            seen.append(delivery.id)
            # A handler may push: it is in a thread of its own.
            client.queue("next").push("", id="follows")
            worker.stop()
            return None

        worker.queue("q", handle, concurrency=1)
        client.queue("q").push("", id="a", delay=0.1)
        worker.run()
        assert seen == ["a"]
        assert server.meta("q", "acked") == 1
        assert client.queue("next").get("follows") is not None


def test_a_client_is_refused_after_a_fork_after_close_and_on_its_own_loop(server: RedisServer) -> None:
    client = blocking.Client(server.url)
    queue = client.queue("q")
    queue.push("")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            queue.push("")
        except DueqError as error:
            os.write(write, str(error).encode())
        client.close()  # does not wait for the thread that only the parent has
        os._exit(0)
    os.waitpid(child, 0)
    assert b"before this process was forked" in os.read(read, 1_000)

    async def call() -> None:
        with pytest.raises(DueqError, match="would wait for ever"):
            queue.push("")

    client.wait_for(call())
    client.close()
    client.close()
    with pytest.raises(DueqError, match="closed"):
        queue.push("")
    assert threading.active_count() == 1


def test_errors_survive_pickling() -> None:
    error = DueqError(ErrorKind.FULL, Applied.NO, "full", code="OOM", id=b"a")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.kind, copy.applied, str(copy), copy.code, copy.id) == ("full", "no", "full", "OOM", b"a")


def test_a_blocking_call_does_not_stop_the_loop_of_its_caller(server: RedisServer) -> None:
    async def main() -> None:
        with blocking.Client(server.url) as client:
            receipt = await asyncio.to_thread(client.queue("q").push, "", id="a")
            assert receipt.created

    asyncio.run(main())
