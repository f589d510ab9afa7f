"""Schedules that are declared from code."""

from __future__ import annotations

import asyncio

import pytest
from servers_for_tests import RedisServer
from test_consumer import running, until

import dueq
from dueq import Delivery, DueqError, MissedPolicy, Schedule, ScheduleState, Tick, blocking


def test_a_set_is_declared_changed_and_pruned(server: RedisServer) -> None:
    async def main() -> None:
        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            billing = queue.schedules("billing")
            sync, report = Schedule("sync", every=900), Schedule("report", every=3_600, payload="{}")
            would = await billing.apply([sync], dry_run=True)
            assert [one.name for one in would.created] == ["sync"]
            assert await queue.list_schedules() == []
            done = await billing.apply([sync, report], revision=2, fire_now=True)
            assert [one.name for one in done.created] == ["sync", "report"]
            assert done.created[0].next_ms is not None
            done = await billing.apply([sync, Schedule("report", every=60)], revision=2)
            assert ([one.name for one in done.kept], [one.name for one in done.changed]) == (["sync"], ["report"])
            with pytest.raises(DueqError, match="newer revision 2") as caught:
                await billing.apply([], revision=1, prune=True)
            assert caught.value.code == "STALE"
            with pytest.raises(DueqError, match=r"schedule 'fast': .*nothing was changed"):
                await billing.apply([Schedule("fast", every=0.001), Schedule("new", every=60)])
            assert [one.name for one in await queue.list_schedules()] == ["report", "sync"]
            assert (await billing.apply([report], prune=True)).removed == ["sync"]
            many = [Schedule(f"s{n}", every=60) for n in range(24)]
            for name in ("one", "two"):
                await queue.schedules(name).apply(many if name == "one" else [])
            await queue.schedules("one").apply([])
            assert len((await queue.schedules("one").apply([], prune=True, forget=True)).removed) == 24
            with pytest.raises(DueqError, match="several sets"):
                await billing.apply([*many, sync])

    asyncio.run(main())


def test_one_schedule_is_read_paused_and_removed(server: RedisServer) -> None:
    with blocking.Client(server.url) as client:
        queue = client.queue("q")
        queue.schedules("billing").apply([Schedule("sync", every=900)], fire_now=True)
        one = queue.schedule("sync")
        found = one.get()
        assert found is not None
        assert (found.state, found.triggered, found.spec) == (ScheduleState.ACTIVE, 1, "set=billing every=900000")
        assert one.pause()
        assert [one.state for one in queue.list_schedules()] == [ScheduleState.PAUSED]
        assert one.resume()
        assert one.remove()
        assert not one.remove()
        assert one.get() is None


def test_a_worker_handles_the_ticks(server: RedisServer) -> None:
    async def main() -> None:
        ticks: list[Tick | None] = []

        async def handle(delivery: Delivery) -> None:
            ticks.append(delivery.tick)

        async with dueq.connect(server.url) as client:
            queue = client.queue("q")
            await queue.push("", id="sync@7")  # an id like that of a tick
            heartbeat = Schedule("sync", every=0.1, missed=MissedPolicy.ALL, limit=3)
            await queue.schedules("billing").apply([heartbeat])
            async with running(client.worker().queue(queue, handle)):
                await until(lambda: len(ticks) == 4)
            assert ticks[0] is None
            fires = [tick.nominal_ms for tick in ticks if tick is not None and tick.schedule == "sync"]
            assert [ms - fires[0] for ms in fires] == [0, 100, 200]

    asyncio.run(main())
