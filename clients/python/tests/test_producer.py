"""Calls of producers against a real server: results, gathering, and replies that are lost."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from servers_for_tests import Proxy, RedisServer

import dueq
from dueq import Applied, CancelOutcome, DueqError, EndKind, ErrorKind, Message, MessageState, OnConflict, PushOutcome
from dueq._scripts import SCRIPTS
from dueq.server import MOST_CALLS


def is_call(verb: str) -> bytes:
    """What a call of this verb has in its bytes, once its script is loaded."""
    return SCRIPTS[verb][0].encode()


def test_any_number_of_calls_at_once_takes_64_connections(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("orders")
            assert await asyncio.gather(*(queue.get(f"order:{number}") for number in range(3_000))) == [None] * 3_000
            await queue.push("")
            # And the connection that asks.
            assert server.client.info("clients")["connected_clients"] <= MOST_CALLS + 1

    asyncio.run(main())


def test_results_of_each_call_in_each_state(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("orders")
            due = datetime.now(UTC) + timedelta(hours=1)
            receipt = await queue.push("rate it", id="order:42", due=due, max_attempts=5, cost=2)
            assert receipt == dueq.Receipt("order:42", PushOutcome.CREATED)
            again = await queue.push("rate it", id="order:42")
            assert (again.outcome, again.state, again.created) == (PushOutcome.EXISTS, MessageState.SCHEDULED, False)
            stored = await queue.get("order:42")
            assert stored is not None
            assert (stored.payload, stored.max_attempts, stored.cost) == (b"rate it", 5, 2)
            assert 0 <= stored.time_ms - due.timestamp() * 1_000 <= 1
            moved = await queue.reschedule("order:42", delay=60, expected=stored.time_ms)
            assert moved.outcome == "moved"
            assert (await queue.reschedule("order:42", due=due, expected=1)).outcome == "conflict"
            replaced = await queue.push("other", id="order:42", delay=9, on_conflict=OnConflict.REPLACE)
            assert replaced.outcome is PushOutcome.MOVED
            assert await queue.run_now("order:42") == "moved"
            assert await queue.run_now("order:42") == "already"
            assert await queue.cancel("order:42") is CancelOutcome.CANCELLED
            assert await queue.cancel("none") is CancelOutcome.ABSENT
            end = await queue.end_of("order:42")
            assert end is not None
            assert end.kind is EndKind.CANCELLED
            assert await queue.get("order:42") is None

    asyncio.run(main())


def test_ids_that_the_library_makes_ascend_and_are_short() -> None:
    ids = [Message("").id for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(len(id) <= 30 for id in ids)


def test_ids_and_payloads_are_any_bytes(server: RedisServer) -> None:
    ids: list[str | bytes] = ["größe", "🦀", "a b", b"\xff\xfe", "x" * 200]

    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("die größte, Nr. 1")
            for id in ids:
                payload = bytes(range(256)) + b"\r\n"
                receipt = await queue.push(payload, id=id)
                stored = await queue.get(receipt.id)
                assert stored is not None
                assert stored.payload == payload
            for bad in ("", "a\n", "\0", "x" * 201):
                with pytest.raises(DueqError, match="an id has 1 to 200 bytes"):
                    await queue.push("", id=bad)

    asyncio.run(main())


def test_an_error_of_bad_input_shows_the_value_and_the_rule() -> None:
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("a payload is a str or bytes, not dict: encode it, such as by json.dumps", {"a": 1}, {}),
        ("an id is a str or bytes, not int: encode it, such as by json.dumps", "", {"id": 42}),
        ("message id 'é\\x00' of 3 bytes: an id has 1 to 200 bytes, none of them a control byte", "", {"id": "é\0"}),
        ("a message has no option dleay: `Options` lists them", "", {"dleay": 5}),
        ("a time is seconds or a timedelta, not str", "", {"delay": "5"}),
        ("on_conflict is new, it must be one of keep, reschedule, replace, next", "", {"on_conflict": "new"}),
        ("cost is 0.5, it must be a whole number from 1 to 1000000", "", {"cost": 0.5}),
    ]
    for text, payload, options in refused:
        with pytest.raises(DueqError, match=f"^{re.escape(text)}$") as caught:
            dueq.Message(payload, **options)
        assert caught.value.kind is ErrorKind.INVALID_INPUT


def test_calls_under_way_gather_what_comes_meanwhile(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("many")
            await queue.push("")
            before = server.calls("evalsha")
            receipts = await asyncio.gather(*(queue.push("x", id=f"a{n}") for n in range(1_000)))
            assert all(receipt.created for receipt in receipts)
            assert server.calls("evalsha") - before <= 8
            many = await queue.push_many([Message("x", id="a1"), Message("x" * 2**20 + "y"), Message("x", id="new")])
            first, refused, last = many
            assert getattr(first, "outcome", None) is PushOutcome.EXISTS
            assert getattr(refused, "code", None) == "TOO_LARGE"
            assert getattr(last, "created", None) is True

    asyncio.run(main())


def test_a_push_whose_reply_is_lost_stores_one_message(server: RedisServer) -> None:
    async def main() -> None:
        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client:
            queue = client.queue("q")
            await queue.push("", id="first")
            proxy.lose(lambda data: is_call("push") in data)
            receipt = await queue.push("x", id="a", delay=60)
            assert proxy.lost.is_set()
            assert (receipt.outcome, receipt.state) == (PushOutcome.EXISTS, MessageState.SCHEDULED)
            assert server.meta("q", "pushed") == 2

    asyncio.run(main())


def test_a_push_whose_message_ended_before_the_repetition_is_finished(server: RedisServer) -> None:
    async def main() -> None:
        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client, dueq.connect(server.url) as other:
            queue = client.queue("q")
            await queue.push("", id="first")

            proxy.lose(lambda data: is_call("push") in data, hold=True)
            push = asyncio.create_task(queue.push("x", id="a", delay=1))
            await proxy.lost.wait()
            await other.queue("q").cancel("a")
            proxy.resume()
            assert (await push).outcome is PushOutcome.FINISHED
            assert server.meta("q", "pushed") == 2
            assert await queue.get("a") is None

    asyncio.run(main())


def test_a_replacement_whose_reply_is_lost_is_reported_as_unknown(server: RedisServer) -> None:
    async def main() -> None:
        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client:
            queue = client.queue("q")
            await queue.push("", id="a", on_conflict=OnConflict.REPLACE)
            proxy.lose(lambda data: is_call("upsert") in data)
            with pytest.raises(DueqError) as caught:
                await queue.push("x", id="a", on_conflict=OnConflict.REPLACE)
            assert (caught.value.applied, caught.value.id) == (Applied.UNKNOWN, b"a")
            assert caught.value.retryable

    asyncio.run(main())


def test_a_repeated_cancel_spares_the_message_that_was_pushed_since(server: RedisServer) -> None:
    async def main() -> None:
        async with Proxy(server.port) as proxy, dueq.connect(proxy.url) as client, dueq.connect(server.url) as other:
            queue = client.queue("q")
            await queue.cancel("none")
            await queue.push("", id="a", delay=60)
            proxy.lose(lambda data: is_call("cancel") in data, hold=True)
            cancel = asyncio.create_task(queue.cancel("a"))
            await proxy.lost.wait()
            await other.queue("q").push("new", id="a", delay=60)
            proxy.resume()
            assert await cancel is CancelOutcome.CANCELLED
            stored = await queue.get("a")
            assert stored is not None
            assert stored.payload == b"new"

    asyncio.run(main())


def test_calls_go_on_after_a_kill_and_a_freeze(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="before")
            server.kill()
            push = asyncio.create_task(queue.push("", id="during", delay=60))
            await asyncio.sleep(0.2)
            server.start()
            assert (await push).created
            server.signal(19)
            push = asyncio.create_task(queue.push("", id="frozen", delay=60))
            await asyncio.sleep(0.3)
            server.signal(18)
            assert (await push).outcome in (PushOutcome.CREATED, PushOutcome.EXISTS)

    asyncio.run(main())


# Each with what was done to the server, the URL of the client, and what the error says, also what to do.
REFUSALS: list[tuple[str, list[list[str | int]], str, ErrorKind, str | None, str]] = [
    ("a wrong type", [["SET", "dueq:{q}:scheduled", "x"]], "", ErrorKind.SERVER, "WRONGTYPE", "`dueq doctor QUEUE`"),
    (
        "a layout from the future",
        [["HSET", "dueq:{q}:meta", "layout", 99]],
        "",
        ErrorKind.UNSUPPORTED,
        "LAYOUT",
        "install a newer version",
    ),
    ("no right", [], "poor:secret@", ErrorKind.DENIED, "NOPERM", "`dueq acl ROLE QUEUE`"),
    ("a wrong password", [], "poor:wrong@", ErrorKind.DENIED, "WRONGPASS", "give user and password in the URL"),
    (
        "no password",
        [["ACL", "SETUSER", "default", "resetpass", ">secret"]],
        "",
        ErrorKind.DENIED,
        "NOAUTH",
        "give user and password in the URL",
    ),
    (
        "an evicting server",
        [["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]],
        "",
        ErrorKind.UNSUPPORTED,
        None,
        "set noeviction",
    ),
    ("a full server", [["CONFIG", "SET", "maxmemory", 1]], "", ErrorKind.FULL, "OOM", "raise maxmemory"),
]


@pytest.mark.parametrize(("name", "commands", "user", "kind", "code", "hint"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_refusal_has_its_code_and_says_what_to_do(
    server: RedisServer,
    name: str,
    commands: list[list[str | int]],
    user: str,
    kind: ErrorKind,
    code: str | None,
    hint: str,
) -> None:
    redis = server.client
    redis.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+info")

    async def main() -> None:
        async with dueq.connect(server.url) as client:
            await client.queue("q").push("", id="first")
        for command in commands:
            if command[0] == "SET":
                redis.delete(command[1])
            redis.execute_command(*command)
        async with dueq.connect(server.url.replace("//", f"//{user}")) as client:
            with pytest.raises(DueqError, match=re.escape(hint)) as caught:
                await client.queue("q").push("", id="a")
        error = caught.value
        assert (error.kind, error.code, error.applied) == (kind, code, Applied.NO)
        assert "wrong@" not in str(error)

    asyncio.run(main())


def test_a_server_that_is_too_old_is_refused() -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(await reader.readexactly(int((await reader.readline())[1:])))
                await reader.readline()
            info = b"redis_version:6.2.14\r\n"
            writer.write(b"$%d\r\n%s\r\n" % (len(info), info) if words[0] == b"INFO" else b"+OK\r\n")
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(old, "127.0.0.1", 0) as stub:
            port = stub.sockets[0].getsockname()[1]
            async with dueq.connect(f"redis://127.0.0.1:{port}/") as client:
                with pytest.raises(DueqError, match=r"version 6\.2\.14, and dueq needs Redis 7\.0") as caught:
                    await client.queue("q").push("")
                assert (caught.value.kind, caught.value.applied) == (ErrorKind.UNSUPPORTED, Applied.NO)

    asyncio.run(main())


def test_a_server_that_is_away_is_unavailable(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueq.partition.PATIENCE", 0.3)
    server.kill()

    async def main() -> None:
        async with dueq.connect(server.url) as client:
            with pytest.raises(DueqError) as caught:
                await client.queue("q").push("")
            error = caught.value
            assert (error.kind, error.applied, error.retryable) == (ErrorKind.UNAVAILABLE, Applied.NO, True)

    asyncio.run(main())


def test_a_client_refuses_another_loop_and_calls_after_close(server: RedisServer) -> None:
    client = dueq.connect(server.url)

    async def push() -> None:
        await client.queue("q").push("")

    async def push_and_close() -> None:
        await push()
        with pytest.raises(DueqError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, push())
        await client.close()
        with pytest.raises(DueqError, match="closed"):
            await push()

    asyncio.run(push_and_close())


def test_a_cancelled_caller_leaves_the_batch_to_the_others(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("")
            pushes = [asyncio.create_task(queue.push("x", id=f"a{n}")) for n in range(10)]
            await asyncio.sleep(0)
            pushes[3].cancel()
            results = await asyncio.gather(*pushes, return_exceptions=True)
            assert isinstance(results.pop(3), asyncio.CancelledError)
            assert all(isinstance(result, dueq.Receipt) and result.created for result in results)

    asyncio.run(main())
