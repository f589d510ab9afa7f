"""Calls of the scripts at one partition of a queue, and how long a failed call is repeated."""

from __future__ import annotations

import asyncio
import random
import secrets
from time import monotonic

from .clock import Clock
from .durability import Durability
from .errors import Applied, DueqError, ErrorKind
from .replies import Reply
from .routes import Keys
from .server import Word
from .servers import Servers

PATIENCE = 10.0
"""How long a call is repeated before its error is reported."""
_UNSURE_US = 1_000_000
"""From this uncertainty of the server's clock on, its time is asked for."""


class Patience:
    """The repetitions of one call: for 10 s, with pauses from 10 ms, doubling up to 500 ms."""

    def __init__(self) -> None:
        self._end = monotonic() + PATIENCE
        self._pause = 0.01

    def allows(self, error: DueqError, repeatable: bool) -> bool:
        """Whether a call that ended with this error may be sent again."""
        harmless = repeatable or error.applied is Applied.NO
        return (
            harmless
            and error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT)
            and not error.is_remapped
            and monotonic() < self._end
        )

    async def pause(self) -> None:
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, 0.5)


class Attempt:
    """What makes the tries of one push recognisable: all of them send the same argument."""

    def __init__(self, clock: Clock) -> None:
        now = monotonic()
        # From the earliest time at which the first try may begin: then no message that ended before is taken for it.
        until_us = clock.earliest_us(now) + int(PATIENCE * 1e6)
        self.argument = f"{until_us // 1000}.{until_us % 1000:03} {secrets.token_hex(12)}"
        self.latest_start_us = clock.latest_us(now)


class Partition:
    """One partition: its keys, and the clock of its server."""

    def __init__(self, servers: Servers, queue: str, tag: str) -> None:
        self._servers = servers
        self.queue = queue
        self.tag = tag
        self.keys = Keys(queue, tag)
        self.clock = Clock()

    async def call(self, verb: str, *arguments: Word, fence: str = "", durability: Durability | None = None) -> Reply:
        """One try of a call."""
        sent = monotonic()
        missing: str | DueqError = ""
        if durability is None:
            raw = await self._servers.run(verb, self.keys.ten, (fence, *arguments))
        else:
            raw, missing = await self._servers.run_durably(verb, self.keys.ten, (fence, *arguments), durability)
        reply = Reply.read(verb, raw, sent, monotonic(), missing)
        self.clock.observe(sent, reply.received, reply.header.now_us)
        return reply

    async def call_patiently(self, verb: str, *arguments: Word, fence: str = "") -> Reply:
        """Repeats a call that may be repeated, for up to 10 s."""
        patience, unknown = Patience(), False
        while True:
            try:
                return await self.call(verb, *arguments, fence=fence)
            except DueqError as error:
                if not patience.allows(error, True):
                    raise (error.of_repeated() if unknown else error) from error.__cause__
                unknown |= error.applied is not Applied.NO
            await patience.pause()

    async def learn_time(self, *, again: bool = False) -> None:
        """Asks the server for its time, unless the clock is known well enough."""
        sent = monotonic()
        if not again and self.clock.known and self.clock.spread_us(sent) < _UNSURE_US:
            return
        try:
            seconds, us = await self._servers.call(self.keys.meta, "TIME")
        except DueqError as error:
            raise error.marked(Applied.NO) from error
        self.clock.observe(sent, monotonic(), int(seconds) * 1_000_000 + int(us))

    async def read_map(self) -> str:
        """The text of the map in this partition's meta; empty without one."""
        try:
            text: bytes | None = await self._servers.call(self.keys.meta, "HGET", self.keys.meta, "map")
        except DueqError as error:
            raise error.marked(Applied.NO) from error
        return (text or b"").decode("utf-8", "replace")
