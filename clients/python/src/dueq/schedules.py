"""Recurring work: schedules, whose fires become messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .errors import Applied, DueqError, ErrorKind, invalid, unexpected
from .model import OnExpire, Seconds, encoded, milliseconds, unix_ms
from .routes import HOME

if TYPE_CHECKING:
    from .client import Client
    from .partition import Partition
    from .router import Router

_MOST = 24
_PAGE = 64


class MissedPolicy(StrEnum):
    """Which of several due fires become ticks, after a time without workers."""

    ONE = "one"
    SKIP = "skip"
    ALL = "all"


class OverlapPolicy(StrEnum):
    """What a fire does while an earlier tick waits or is leased."""

    ALLOW = "allow"
    SKIP = "skip"
    REPLACE = "replace"


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DRY = "dry"
    ENDED = "ended"


class Schedule:
    """A period with a name, a payload and policies. Redis makes a *tick* at each fire: a message `NAME@<fire in ms>`.

    The server judges the values. Crons are declared by the program or by Rust, which know the time zones.
    """

    __slots__ = ("arguments", "name")

    def __init__(
        self,
        name: str,
        *,
        every: Seconds,
        payload: bytes | str = b"",
        anchor: datetime | int | None = None,
        missed: MissedPolicy = MissedPolicy.ONE,
        max: int | None = None,
        within: Seconds | None = None,
        overlap: OverlapPolicy = OverlapPolicy.ALLOW,
        jitter: Seconds | None = None,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        limit: int | None = None,
        max_attempts: int | None = None,
        expires_after: Seconds | None = None,
        on_expire: OnExpire = OnExpire.DEAD,
    ) -> None:
        self.name = name
        # A word that is given with its default value would be a difference to a schedule without it.
        spec = {
            "every": milliseconds(every),
            "anchor": None if anchor is None else unix_ms(anchor),
            "missed": None if missed == MissedPolicy.ONE else MissedPolicy(missed),
            "within": None if within is None else milliseconds(within),
            "max": None if max == 1_000 else max,
            "overlap": None if overlap == OverlapPolicy.ALLOW else OverlapPolicy(overlap),
            "jitter": milliseconds(jitter or 0) or None,
            "start": None if start is None else unix_ms(start),
            "end": None if end is None else unix_ms(end),
            "limit": limit,
        }
        options = {
            "max_attempts": max_attempts,
            "expires": None if expires_after is None else f"+{milliseconds(expires_after)}",
            "on_expire": None if on_expire == OnExpire.DEAD else OnExpire(on_expire),
        }
        self.arguments = (name, _words(spec), "", _words(options), "", encoded(payload))


def _words(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Tick:
    """The schedule that made a message, and the fire that it stands for."""

    schedule: str
    nominal_ms: int


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    name: str
    next_ms: int | None
    """The next fire, if there is one."""


@dataclass(frozen=True, slots=True)
class ScheduleChanges:
    """What an apply did; of a dry run, what it would do."""

    created: list[ScheduleChange]
    changed: list[ScheduleChange]
    kept: list[ScheduleChange]
    removed: list[str]


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as the queue has it, and what became of its fires."""

    name: str
    state: ScheduleState
    next_ms: int | None
    made: int
    missed: int
    overlapped: int
    paused: int
    triggered: int
    spec: str
    options: str
    pattern: str


class _OfHome:
    """The schedules of a queue are at its home: a queue of several partitions has none."""

    def __init__(self, client: Client, router: Router, name: str) -> None:
        self._client = client
        self._router = router
        self.name = name

    def _home(self) -> Partition:
        self._client.check()
        return self._router.partition(HOME)


class ApplyOptions(TypedDict, total=False):
    """How a set is declared."""

    revision: int
    """Such as the number of a release. A lower one than the stored one is refused."""
    prune: bool
    """Removes the other schedules of the set."""
    forget: bool
    """Forgets the set and its revision, if it has no schedules then."""
    fire_now: bool
    """Makes a tick of each new schedule at once."""
    dry_run: bool
    """Changes nothing, and answers what would be changed."""


_FLAGS = {"prune": "prune", "forget": "forget", "now": "fire_now", "dry_run": "dry_run"}


class ScheduleSet(_OfHome):
    """All schedules of one owner, such as those of a service: `queue.schedules("billing")`."""

    async def apply(self, schedules: Iterable[Schedule], **options: Unpack[ApplyOptions]) -> ScheduleChanges:
        """Creates and changes schedules, up to 24: all of them, or none. One that is the same as before stays as it is.

        The first apply gives the queue layout 4, which releases before 0.2 refuse.
        """
        items = list(schedules)
        if len(items) > _MOST:
            raise invalid(f"{len(items)} schedules: an apply declares up to {_MOST}; make several sets of them")
        words = " ".join(word for word, name in _FLAGS.items() if options.get(name))
        arguments = [word for item in items for word in item.arguments]
        removed: list[str] = []
        while True:  # a call removes up to 24
            revision = str(options.get("revision", ""))
            reply = await self._home().call_patiently("schedule", self.name, revision, words, *arguments)
            changes, more = _declared(items, reply.body)
            removed += changes.removed
            if not more or options.get("dry_run"):
                return replace(changes, removed=removed)


class ScheduleHandle(_OfHome):
    """One schedule: `queue.schedule("sync")`."""

    async def get(self) -> ScheduleInfo | None:
        found = await page(self._home(), self.name)
        return found[1][0] if found[1] else None

    async def pause(self) -> bool:
        """Its fires count as paused until `resume`. False if there is no such schedule."""
        return await self._amend("pause")

    async def resume(self) -> bool:
        return await self._amend("resume")

    async def remove(self) -> bool:
        """Removes it; its ticks stay."""
        return await self._amend("remove")

    async def _amend(self, change: str) -> bool:
        reply = await self._home().call_patiently("amend", change, self.name)
        try:
            return bool(reply.body[0][0] != b"GONE")
        except (TypeError, LookupError):
            raise unexpected("amend", reply.body) from None


async def all_schedules(home: Partition) -> list[ScheduleInfo]:
    cursor, found = b"", list[ScheduleInfo]()
    while True:
        cursor, more = await page(home, cursor, _PAGE, "")
        found += more
        if not cursor:
            return found


async def page(home: Partition, *arguments: str | bytes | int) -> tuple[bytes, list[ScheduleInfo]]:
    body = (await home.call_patiently("schedules", *arguments)).body
    try:
        return body[0], [_info(item) for item in body[1]]
    except (TypeError, ValueError, LookupError, AttributeError):
        raise unexpected("schedules", body) from None


def _info(item: list[Any]) -> ScheduleInfo:
    state = ScheduleState(item[1].decode())
    next_ms = item[2] if state is ScheduleState.ACTIVE else None
    made, missed, overlapped, paused, triggered = item[5:10]
    spec, options, pattern = (text.decode() for text in item[11:14])
    return ScheduleInfo(
        item[0].decode(), state, next_ms, made, missed, overlapped, paused, triggered, spec, options, pattern
    )


def _declared(items: list[Schedule], body: list[Any]) -> tuple[ScheduleChanges, bool]:
    try:
        word, _, stored = body[0].decode().partition(" ")
        texts = [text.decode().partition(" ") for text in body[1]]
        if word == "STALE":
            text = f"the set has the newer revision {stored}: nothing was changed"
            raise DueqError(ErrorKind.INVALID_INPUT, Applied.NO, text, code="STALE")
        named = list(zip((item.name for item in items), texts, strict=True))
        if word == "INVALID":
            why = "; ".join(f"schedule {name!r}: {why}" for name, (result, _, why) in named if result == "INVALID")
            raise invalid(f"{why} (nothing was changed)")
        lists: dict[str, list[ScheduleChange]] = {"CREATED": [], "CHANGED": [], "KEPT": []}
        for name, (result, _, ms) in named:
            lists[result].append(ScheduleChange(name, int(ms) or None))
        removed = [name.decode() for name in body[2]]
        return ScheduleChanges(lists["CREATED"], lists["CHANGED"], lists["KEPT"], removed), body[3] == 1
    except (TypeError, ValueError, LookupError, AttributeError):
        raise unexpected("schedule", body) from None
