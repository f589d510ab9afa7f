"""A delivery, as a handler sees it, and what a handler may answer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .errors import invalid
from .model import Message, Seconds, due_word, milliseconds, shown
from .replies import Granted
from .schedules import Tick

_DOUBLINGS = 31


@dataclass(frozen=True, slots=True)
class Retry:
    """The delays between attempts. They do not limit the number of attempts: the message or its queue does."""

    first_ms: int = 1_000
    most_ms: int = 3_600_000
    jitter: bool = True

    @classmethod
    def exponential(cls, first: Seconds, most: Seconds) -> Retry:
        """Doubling delays from `first` up to `most`, less a random part of up to half of each."""
        retry = cls(milliseconds(first), milliseconds(most))
        if not 0 < retry.first_ms <= retry.most_ms:
            raise invalid(f"retry delays from {first} to {most}: the first must be above zero and not above the last")
        return retry

    @classmethod
    def fixed(cls, delay: Seconds) -> Retry:
        """One delay for all retries, without jitter."""
        ms = milliseconds(delay)
        return cls(ms, ms, jitter=False)

    def delay_ms(self, attempt: int, chance: float | None = None) -> int:
        """The delay after this attempt; 1 is the first."""
        if not self.jitter:
            return self.first_ms
        full = min(self.first_ms << min(max(attempt - 1, 0), _DOUBLINGS), self.most_ms)
        return int(full * (1 - 0.5 * (random.random() if chance is None else chance)))


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a delivery is settled. A handler returns one; `None` is an ack, and an exception a retry."""

    verb: str
    word: str = ""
    """The due time or the time to wait, as the script reads it."""
    text: str = ""
    messages: tuple[Message, ...] = ()

    @classmethod
    def ack(cls) -> Settlement:
        """Done: the message is removed."""
        return cls("ack")

    @classmethod
    def ack_and(cls, messages: Sequence[Message]) -> Settlement:
        """Done, and in the same step these messages are stored, 100 at most. Those without an id are named after it."""
        if not 1 <= len(messages) <= 100:
            raise invalid(f"ack_and takes 1 to 100 messages, not {len(messages)}")
        return cls("ack_push", messages=tuple(messages))

    @classmethod
    def again(cls, delay: Seconds | None = None, *, due: datetime | int | None = None) -> Settlement:
        """Done for this time: the message is due again then, with its attempts reset."""
        return cls("again", due_word(delay, due))

    @classmethod
    def retry(cls, error: object, *, after: Seconds | None = None) -> Settlement:
        """Failed: due again after a delay, by default that of the worker; dead at the limit of attempts."""
        return cls("retry", "" if after is None else str(milliseconds(after)), str(error))

    @classmethod
    def release(cls) -> Settlement:
        """Given back: due at once, and no attempt counts."""
        return cls("release")

    @classmethod
    def bury(cls, reason: object) -> Settlement:
        """Failed for good: the message is dead at once, for this reason."""
        return cls("bury", text=str(reason))

    @classmethod
    def snooze(cls, delay: Seconds | None = None, *, due: datetime | int | None = None) -> Settlement:
        """Too early: due again then, and no attempt counts."""
        return cls("snooze", due_word(delay, due))

    @classmethod
    def throttle(cls, wait: Seconds) -> Settlement:
        """The receiver wants a break: given back, and no message of the queue starts for so long."""
        return cls("throttle", str(milliseconds(wait)))


class Delivery:
    """One message in the hands of a handler, under a lease that the worker extends."""

    __slots__ = ("_granted", "_lost", "expires", "queue", "token")

    def __init__(self, queue: str, granted: Granted, token: bytes, expires: float) -> None:
        self.queue = queue
        self._granted = granted
        self.token = token
        self.expires = expires
        """Until when the lease runs at least, by the monotonic clock."""
        self._lost = False

    @property
    def id(self) -> str:
        return shown(self._granted.id)

    @property
    def id_bytes(self) -> bytes:
        return self._granted.id

    @property
    def payload(self) -> bytes:
        return self._granted.payload

    def json(self) -> Any:
        """The payload, parsed as JSON."""
        return json.loads(self._granted.payload)

    @property
    def attempt(self) -> int:
        """Failures and crashes before this delivery, plus one."""
        return self._granted.attempt

    @property
    def crashes(self) -> int:
        """How many leases of the message ran out before."""
        return self._granted.crashes

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of this attempt makes the message dead."""
        return self._granted.is_last_attempt

    @property
    def due_ms(self) -> int:
        """When the message was due, in Unix milliseconds of the server."""
        return self._granted.due_ms

    @property
    def expires_at_ms(self) -> int | None:
        """No attempt of the message starts after this time."""
        return self._granted.expires_at_ms

    @property
    def trace_parent(self) -> str | None:
        return self._granted.trace_parent

    @property
    def snoozes(self) -> int:
        return self._granted.snoozes

    @property
    def cost(self) -> int:
        return self._granted.cost

    @property
    def tick(self) -> Tick | None:
        """The schedule and the fire of a message that a schedule has made."""
        name, at, ms = self.id.rpartition("@")
        return Tick(name, int(ms)) if self._granted.is_tick and at and ms.isdecimal() else None

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost: the message is or will be delivered again, so the handler should stop.

        An async handler is cancelled then. A blocking one cannot be: it looks here between its steps.
        """
        return self._lost

    def lose(self) -> None:
        self._lost = True

    def __repr__(self) -> str:
        return f"Delivery({self.queue!r}, {self.id!r}, attempt={self.attempt})"
