"""A node at one partition: it beats, leads or stands by, promotes, reaps, and learns when to claim."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Protocol

from . import replies
from .errors import DueqError, ErrorKind, unexpected
from .partition import Partition, Patience
from .replies import Granted, Reply
from .servers import Servers

log = logging.getLogger("dueq")

FALLBACK = 1.0
"""The longest time for which a node relies on hints alone."""
_BEAT = 0.9
_LEAD = 2.5
_TICK = 0.0001
_STANDBY = 0.025
_PROMOTE = 256
_REAP = 64
_STRANDED = 2.5
Spawn = Callable[[Coroutine[object, object, None]], object]


class Host(Protocol):
    """What a node needs of the consumer that has its handlers."""

    free: int
    has_free: asyncio.Event

    @property
    def running(self) -> int: ...

    def dispatch(self) -> None: ...

    def saw_epoch(self, epoch: int | None) -> None: ...


class Alarm:
    """Acts at a time. At most one act is under way, and of several times the earliest counts.

    `act` returns when to act again, or None.
    """

    def __init__(self, act: Callable[[], Awaitable[float | None]], spawn: Spawn) -> None:
        self._act = act
        self._spawn = spawn
        self._at: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._sent: float | None = None
        self._next: float | None = None

    def arm(self, at: float) -> None:
        if self._sent is not None:
            if at > self._sent:  # the act under way covers what was due when it began
                self._next = at if self._next is None else min(at, self._next)
        elif self._at is None or at < self._at:
            self.clear()
            self._at = at
            self._handle = asyncio.get_running_loop().call_at(at, self._fire)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = self._handle = self._next = None

    def _fire(self) -> None:
        self._at = self._handle = None
        self._sent = monotonic()
        self._spawn(self._run())

    async def _run(self) -> None:
        again: float | None = None
        try:
            again = await self._act()
        finally:
            self._sent = None
        later, self._next = self._next, None
        for at in (again, later):
            if at is not None:
                self.arm(at)


class Node:
    """A node at one partition. `wanted`: it should claim, as soon as a handler is free."""

    def __init__(self, servers: Servers, partition: Partition, id: str, host: Host) -> None:
        self.partition = partition
        self.wanted = False
        self.claiming = False
        self._servers = servers
        self._id = id
        self._host = host
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._newest: Reply | None = None
        self._leads_until = 0.0
        self._heard_at = 0.0
        self._nodes = 1
        self._reap_after_ms = 0
        self._promote = Alarm(self._promote_now, self._spawn)
        self._reap = Alarm(self._reap_now, self._spawn)
        self._beat_now = asyncio.Event()
        self._claimed = asyncio.Event()
        self._claimed.set()
        self._empty = 0
        self._moving: tuple[bytes, float] | None = None
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._tasks = [group.create_task(loop()) for loop in (self._pops, self._notices)]
                group.create_task(self._beats())
        finally:
            self._group = None
            self._promote.clear()
            self._reap.clear()

    async def stop_claiming(self) -> None:
        """Waits for no more messages, and returns the wake-up tokens that this node may have taken."""
        self.wanted = False
        self._promote.clear()
        await end_all(self._tasks)
        await self._return_token()

    async def leave(self) -> None:
        """Tells the other nodes that this one stops."""
        try:
            await self.partition.call("beat", self._id, "leave")
        except DueqError as error:
            log.info("the other nodes learn in 3 s that this one has stopped: %s", error)

    def want(self) -> None:
        self.wanted = True
        self._claimed.clear()
        self._host.dispatch()

    async def claim(self, free: int, token: bytes, lease_ms: int) -> tuple[list[Granted], float]:
        """Claims up to `free` messages. Returns them, and until when their lease runs at least."""
        self.wanted, self.claiming = False, True
        try:
            reply, began = await self._claim(free, token, lease_ms)
            left, granted = replies.claim(reply)
            self.saw(reply)
            head_ms = reply.header.head_ms
            more = left > 0 or (head_ms is not None and head_ms * 1_000 <= reply.header.now_us)
            self._empty = 0 if granted else self._empty + 1
            if len(granted) == free and more:
                self.want()
            elif more and not reply.header.paused and (granted or self._empty % 16):
                # Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
                asyncio.get_running_loop().call_later(0.001, self._want_again)
            return granted, began + lease_ms / 1_000
        except DueqError as error:
            self._failed("claim", error)
            # The lost reply may have told of a head, and its tokens are gone: the next beat tells again.
            self._beat_now.set()
            return [], 0.0
        finally:
            self.claiming = False
            if not self.wanted:
                self._claimed.set()

    async def _claim(self, free: int, token: bytes, lease_ms: int) -> tuple[Reply, float]:
        """Repeats a claim whose reply was lost with the same token, and so finds what it granted.

        Returns also when the lease began at the earliest.
        """
        patience, first = Patience(), monotonic()
        while True:
            try:
                reply = await self.partition.call("claim", free, token, lease_ms)
                return reply, reply.sent
            except DueqError as error:
                if error.code == "HELD":
                    return await self.partition.call_patiently("held", token), first
                if not patience.allows(error, True):
                    raise
                self._failed("claim", error)
            await patience.pause()

    def _want_again(self) -> None:
        if self._group is not None:
            self.want()

    async def _return_token(self) -> None:
        try:
            await self.partition.call("claim", 0, secrets.token_bytes(16), 1)
        except DueqError as error:
            log.info("a wake-up token was not returned: other nodes look within %s s: %s", FALLBACK, error)

    def saw(self, reply: Reply, *, beat: bool = False) -> None:
        """Uses the header of a reply, unless a newer one was used."""
        new, old = reply.header, self._newest
        if old is not None and not _is_newer(reply, old):
            return
        if old is not None and old.header.incarnation not in ("", new.incarnation):
            log.warning("queue %s was emptied or replaced", self.partition.queue)
            self._beat_now.set()
        self._newest = reply
        self._host.saw_epoch(new.epoch)
        if new.paused:
            self._promote.clear()
        else:
            self._head_is(new.head_ms, beat=beat, sent=reply.sent)
        if new.deadline_ms is not None:
            at = self.partition.clock.at_ms(max(new.deadline_ms, self._reap_after_ms))
            self._reap.arm(at + self._standby(new.deadline_ms))

    @property
    def leads(self) -> bool:
        return monotonic() < self._leads_until

    def _head_is(self, head_ms: int | None, *, beat: bool = False, heard: bool = False, sent: float = math.inf) -> None:
        # A leader that has promoted its head lives. A reply may be older than the notice that came before it.
        if not self.leads and sent > self._heard_at:
            self._promote.clear()
        if head_ms is None:
            return
        newest = self._newest
        if newest is not None and head_ms * 1_000 <= newest.header.now_us and not heard:
            # The call has added wake-up tokens. One of them may have been lost, so a beat looks after it.
            if beat:
                self._promote.arm(monotonic())
            return
        self._promote.arm(self.partition.clock.at_ms(head_ms) + self._standby(head_ms))

    def _standby(self, time_ms: int) -> float:
        """By how much this node acts later than the leader. It differs between nodes, and between times."""
        if self.leads:
            return 0.0
        part = zlib.crc32(f"{self._id}{time_ms}".encode()) / 2**32
        return min(_STANDBY * (1 + part * self._nodes), FALLBACK)

    async def _promote_now(self) -> float | None:
        alone = self._nodes == 1 or self._host.running == 0
        if self._host.free > 0 and (alone if self.leads else self._nodes == 1):
            self.want()  # a claim takes due messages, too
            return None
        try:
            reply = await self.partition.call("promote", _PROMOTE)
        except DueqError as error:
            self._failed("promote", error)
            return None
        self.saw(reply)
        head_ms = reply.header.head_ms
        # What is due still needs no second call: this one has added wake-up tokens, and claims take it.
        if head_ms is None or reply.header.paused or head_ms * 1_000 <= reply.header.now_us:
            return None
        return max(self.partition.clock.at_ms(head_ms) + self._standby(head_ms), monotonic() + _TICK)

    async def _reap_now(self) -> float | None:
        newest = self._newest
        deadline_ms = newest.header.deadline_ms if newest else None
        if deadline_ms is None:
            return None
        at = self.partition.clock.at_ms(max(deadline_ms, self._reap_after_ms))
        if at > monotonic():  # the lease was settled or extended since
            return at + self._standby(deadline_ms)
        try:
            reply = await self.partition.call("reap", _REAP)
        except DueqError as error:
            self._failed("reap", error)
            return monotonic() + FALLBACK
        self.saw(reply)
        if reply.body[0]:
            log.warning("queue %s: %s leases of other nodes ran out", self.partition.queue, reply.body[0])
        deadline_ms = reply.header.deadline_ms
        if deadline_ms is None:
            return None
        passed = deadline_ms * 1_000 <= reply.header.now_us
        if passed:
            return monotonic() if reply.body[0] else monotonic() + FALLBACK
        return self.partition.clock.at_ms(deadline_ms) + self._standby(deadline_ms)

    async def _beats(self) -> None:
        pause = 0.05
        while not _is_cancelled():
            self._beat_now.clear()
            try:
                reply = await self.partition.call("beat", self._id, "stay")
                if len(reply.body) < 4:
                    raise unexpected("beat", reply.body)
            except DueqError as error:
                self._failed("beat", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.5)
                continue
            pause = 0.05
            self._works()
            leads, nodes, reap_after_ms, ready = reply.body[:4]
            self._leads_until = reply.sent + _LEAD if leads == 1 else 0.0
            self._nodes, self._reap_after_ms = max(nodes, 1), reap_after_ms
            self.saw(reply, beat=True)
            if ready:
                self.want()
            if self.leads and len(reply.body) > 5 and reply.body[5]:
                self._spawn(self._end_stranded(reply.body[5]))
            elif self.leads:
                self._moving = None
            try:
                async with asyncio.timeout_at(reply.sent + _BEAT):
                    await self._beat_now.wait()
            except TimeoutError:
                pass

    async def _pops(self) -> None:
        pause, key = 0.05, self.partition.keys.wake
        while True:
            await self._host.has_free.wait()
            await self._claimed.wait()
            if self._host.free == 0:  # the claim has used them
                continue
            try:
                popped = await self._servers.call(key, "BLPOP", key, "1")
            except DueqError as error:
                self._failed("BLPOP", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.5)
                self.want()  # the lost reply may have brought a token
                continue
            pause = 0.05
            if popped is None:
                continue
            if self.claiming or self._host.free > 0:
                self.want()
            else:
                await self._return_token()

    async def _notices(self) -> None:
        channel = self.partition.keys.notice
        while True:
            try:
                server = await self._servers.of_key(channel)
                await server.listen(channel, self._heard)
            except DueqError as error:
                self._failed("SSUBSCRIBE", error)
            await asyncio.sleep(FALLBACK)  # the beats bring the head meanwhile

    def _heard(self, notice: bytes | None) -> None:
        """A notice: the head became earlier, or is what a promote left. None: the subscription begins."""
        self._heard_at = monotonic()
        # What was published before was missed; and a new queue has no leader yet.
        if notice is None or (self._newest is not None and self._newest.header.incarnation == ""):
            self._beat_now.set()
        if notice is None:
            return
        if not notice:
            self._head_is(None)
        elif notice.isdigit() and self.partition.clock.known:
            self._head_is(int(notice), heard=True)

    async def _end_stranded(self, moving: bytes) -> None:
        """Ends a batch that stays on its way to another partition for 2.5 s: who moved it may be dead."""
        if self._moving is None or self._moving[0] != moving:
            self._moving = (moving, monotonic())
        epoch = self._newest.header.epoch if self._newest else None
        if monotonic() - self._moving[1] < _STRANDED or epoch is None:
            return
        self._moving, fence, own = None, f"m{epoch}", self.partition
        tag = moving.decode().split(" ")[1]
        try:
            number = (await own.call("depart", "", 0, tag, 5_000, fence=fence)).body[0]
            if not number:
                return
            target = Partition(self._servers, own.queue, tag)
            answer = (await target.call_patiently("arrive", own.tag, number, "", fence=fence)).body[0]
            verdict = {b"VOID": "back", b"APPLIED": "done"}.get(answer.partition(b" ")[0])
            if verdict:
                await own.call_patiently("depart", f"{verdict}={number}", 0, tag, 5_000, fence=fence)
        except DueqError as error:
            log.warning("queue %s: a batch stays on its way to another partition: %s", own.queue, error)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work)

    def _failed(self, what: str, error: DueqError) -> None:
        """Logs the first error of an outage, and of each other kind."""
        kind = "outage" if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) else f"{what} {error.code}"
        if kind not in self._failing:
            log.warning("queue %s: %s failed and is tried again: %s", self.partition.queue, what, error)
        self._failing.add(kind)

    def _works(self) -> None:
        if "outage" in self._failing:
            log.warning("queue %s: redis answers again", self.partition.queue)
            self._failing.discard("outage")


def _is_cancelled() -> bool:
    """Whether this task was cancelled, although `wait_for` of Python 3.11, which redis-py calls, swallowed that."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks until they have ended: `wait_for` of Python 3.11, which redis-py calls, may swallow one."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.1)


def _is_newer(reply: Reply, old: Reply) -> bool:
    """By the rules of the protocol: calls use several connections, so replies overtake each other."""
    if reply.sent >= old.received:
        return True
    if reply.header.incarnation == old.header.incarnation:
        return (reply.header.seq, reply.header.now_us) > (old.header.seq, old.header.now_us)
    return reply.header.now_us > old.header.now_us
