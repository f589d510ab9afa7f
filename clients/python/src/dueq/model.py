"""Messages, and the results of calls. Expected outcomes are values, not errors."""

from __future__ import annotations

import json
import re
import secrets
import time
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict, TypeVar

from .errors import invalid

Seconds = float | timedelta
Id = str | bytes
_Word = TypeVar("_Word", bound=StrEnum)

MAX_DELAY_MS = 3_155_760_000_000  # 100 years
MAX_WINDOW_MS = 2_592_000_000  # 30 days
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
TRACE_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class MessageState(StrEnum):
    """Where a message is in its life."""

    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"


class OnConflict(StrEnum):
    """What a push does if its id waits already."""

    KEEP = "keep"
    """The push changes nothing."""
    RESCHEDULE = "reschedule"
    """The message gets the due time of the push."""
    REPLACE = "replace"
    """The message gets the due time, the payload and the options of the push."""
    NEXT = "next"
    """As `REPLACE`; of a message that a handler has, the new one follows its delivery."""


class OnExpire(StrEnum):
    """What becomes of a message that expires."""

    DEAD = "dead"
    DROP = "drop"


class PushOutcome(StrEnum):
    CREATED = "created"
    EXISTS = "exists"
    """The id is in the queue; nothing was changed. A repeated push has this outcome."""
    MOVED = "moved"
    NEXT = "next"
    REMEMBERED = "remembered"
    """A window remembers the id; nothing was stored."""
    FINISHED = "finished"
    """An earlier try of this call was applied, and the message has ended since."""


class CancelOutcome(StrEnum):
    CANCELLED = "cancelled"
    NEXT = "next"
    """A handler has the message; the message that should follow it is gone."""
    LEASED = "leased"
    DEAD = "dead"
    ABSENT = "absent"


class RescheduleOutcome(StrEnum):
    MOVED = "moved"
    CONFLICT = "conflict"
    LEASED = "leased"
    DEAD = "dead"
    ABSENT = "absent"


class RunNowOutcome(StrEnum):
    MOVED = "moved"
    ALREADY = "already"
    LEASED = "leased"
    DEAD = "dead"
    ABSENT = "absent"


class SettleOutcome(StrEnum):
    DONE = "done"
    UNTIL = "until"
    SCHEDULED = "scheduled"
    DEAD = "dead"
    DROPPED = "dropped"
    GONE = "gone"
    LOST = "lost"


class EndKind(StrEnum):
    FINISHED = "finished"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a push did."""

    id: str
    outcome: PushOutcome
    state: MessageState | None = None
    """With `EXISTS`: the state of the message that has the id."""
    until_ms: int | None = None
    """With `REMEMBERED`: the end of the window, in Unix milliseconds."""

    @property
    def created(self) -> bool:
        return self.outcome is PushOutcome.CREATED


@dataclass(frozen=True, slots=True)
class Rescheduled:
    outcome: RescheduleOutcome
    due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the queue has it."""

    id: str
    state: MessageState
    time_ms: int
    """When it is due; of a leased message when its lease ends; of a dead one when it died."""
    failures: int
    crashes: int
    max_attempts: int | None
    cost: int
    error: str
    payload: bytes
    next_due_ms: int | None = None

    def json(self) -> Any:
        return json.loads(self.payload)


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """How the message of a remembered id ended."""

    kind: EndKind
    ended_at_ms: int
    remembered_until_ms: int | None


class Options(TypedDict, total=False):
    """The options of a message. Times are seconds or a `timedelta`."""

    id: Id
    """1 to 200 bytes without control bytes. Without one the library makes one."""
    delay: Seconds
    """The message is due this long after the server has it."""
    due: datetime | int
    """The message is due at this moment: a `datetime` with a zone, or Unix milliseconds of the server."""
    spread: Seconds
    """The message is due up to this much later, by its id: for many messages of one due time."""
    max_attempts: int
    """After how many failed attempts the message is dead; without it the queue's limit, which is 20 by default."""
    on_conflict: OnConflict
    """What the push does if a message of this id waits already; `KEEP` without it."""
    trace_parent: str
    """The W3C traceparent of the push, which the handler gets."""
    expires_after: Seconds
    """No attempt starts later than this after the due time."""
    expires_at: datetime | int
    """No attempt starts after this moment."""
    on_expire: OnExpire
    """What becomes of a message that expires; `DEAD` without it."""
    cost: int
    """How much of the queue's rate each attempt uses; 1 without it."""
    window: Seconds
    """For this long from the push, no other push stores a message of this id; 30 days at most."""
    reuse: bool
    """Stores the message although the window of an earlier push remembers its id."""
    max_wait: Seconds
    """How far later pushes of this id can postpone the message, from its first push on."""
    revive: bool
    """Replaces a dead message of this id too; with `REPLACE` or `NEXT`."""
    undo_ms: int
    """Stores the message only if nothing happened to its id since a cancel at this server time, at most 12 s ago."""


class Message:
    """A message to push: its payload, and options as in `Options`. It is checked here, before anything is sent."""

    __slots__ = ("_given", "due", "id", "on_conflict", "options", "payload", "repeatable")

    def __init__(self, payload: bytes | str, **given: Any) -> None:
        unknown = given.keys() - Options.__annotations__.keys()
        if unknown:
            raise invalid(f"a message has no option {sorted(unknown)[0]}: `Options` lists them")
        self._given = given
        self.payload = _encoded("a payload", payload)
        if len(self.payload) > MAX_PAYLOAD_BYTES:
            text = f"the payload has {len(self.payload)} bytes, no queue takes more than {MAX_PAYLOAD_BYTES}"
            raise invalid(text, "TOO_LARGE")
        self.id = checked_id(given["id"]) if given.get("id") is not None else new_id()
        self.due = _spread(due_word(given.get("delay"), given.get("due")), given.get("spread"), self.id)
        conflict = given.get("on_conflict")
        self.on_conflict = _one_of(OnConflict, "on_conflict", conflict) if conflict else OnConflict.KEEP
        # A repeated push with `NEXT` changes nothing if the first one was applied.
        self.repeatable = self.on_conflict in (OnConflict.KEEP, OnConflict.NEXT)
        self.options = " ".join(_words(given, self.on_conflict, self.due)) if given else ""

    def named(self, id: bytes) -> Message:
        """This message with this id, unless its producer has given it one."""
        return self if self._given.get("id") is not None else Message(self.payload, **self._given | {"id": id})

    @property
    def arguments(self) -> tuple[bytes, str, bytes, str]:
        return self.id, self.due, self.payload, self.options


def _words(given: dict[str, Any], on_conflict: OnConflict, due: str) -> list[str]:
    words = []
    if (limit := given.get("max_attempts")) is not None:
        words.append(f"max_attempts={_within('max_attempts', limit, 1_000_000)}")
    if on_conflict is not OnConflict.KEEP:
        words.append(f"on_conflict={on_conflict}")
    if (parent := given.get("trace_parent")) is not None:
        if not TRACE_PARENT.fullmatch(parent):
            raise invalid("trace_parent is not a W3C traceparent of version 00")
        words.append(f"traceparent={parent}")
    after, at = given.get("expires_after"), given.get("expires_at")
    if after is not None and at is not None:
        raise invalid("a message has expires_after or expires_at, not both")
    if after is not None:
        words.append(f"expires=+{_within('expires_after in ms', milliseconds(after), MAX_DELAY_MS)}")
    elif at is not None:
        words.append(f"expires={unix_ms(at)}")
    if _one_of(OnExpire, "on_expire", given.get("on_expire") or OnExpire.DEAD) is OnExpire.DROP:
        if after is None and at is None:
            raise invalid("on_expire is set and the message does not expire: set expires_after or expires_at too")
        words.append("on_expire=drop")
    if (cost := given.get("cost")) is not None and _within("cost", cost, 1_000_000) != 1:
        words.append(f"cost={cost}")  # the default 1 is left out: a stored option takes memory
    if (window := given.get("window")) is not None:
        words.append(f"window={_within('window in ms', milliseconds(window), MAX_WINDOW_MS)}")
    if (wait := given.get("max_wait")) is not None:
        wait = _within("max_wait in ms", milliseconds(wait), MAX_DELAY_MS)
        if on_conflict is OnConflict.KEEP:
            raise invalid("max_wait needs an on_conflict other than keep")
        if due[0] == "+" and int(due) > wait:
            raise invalid("the delay is longer than max_wait")
        words.append(f"max_wait={wait}")
    if given.get("reuse"):
        words.append("reuse")
    if given.get("revive"):
        if on_conflict not in (OnConflict.REPLACE, OnConflict.NEXT):
            raise invalid("revive needs on_conflict replace or next")
        words.append("revive")
    if (undo := given.get("undo_ms")) is not None:
        words.append(f"undo={undo}")
    return words


def _within(name: str, number: int, most: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
        raise invalid(f"{name} is {number!r}, it must be a whole number from 1 to {most}")
    return number


def _one_of(kind: type[_Word], name: str, value: str) -> _Word:
    try:
        return kind(value)
    except ValueError:
        raise invalid(f"{name} is {value}, it must be one of {', '.join(kind)}") from None


def milliseconds(time: Seconds) -> int:
    """Rounded up to whole milliseconds, so that nothing is early."""
    if isinstance(time, timedelta):
        return -(-time // timedelta(milliseconds=1))
    if not isinstance(time, int | float):
        raise invalid(f"a time is seconds or a timedelta, not {type(time).__name__}")
    if not 0 <= time < 1e12:
        raise invalid(f"a time is 0 s to 100 years, not {time} s")
    # A float such as 0.007 has a little too much: less than a microsecond is its own inexactness.
    return -(-round(time * 1_000_000) // 1_000)


def unix_ms(moment: datetime | int) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise invalid(f"the datetime {moment} has no zone: use datetime.now(timezone.utc) and the like")
        moment = -(-(moment - datetime.fromtimestamp(0, moment.tzinfo)) // timedelta(milliseconds=1))
    if not isinstance(moment, int) or not 0 <= moment < 10**15:
        raise invalid(f"a moment is a datetime or whole Unix milliseconds, not {moment!r}")
    return moment


def due_word(delay: Seconds | None, due: datetime | int | None) -> str:
    """The due time as the scripts read it: `+MS` or Unix milliseconds."""
    if due is None:
        ms = milliseconds(delay or 0)
        if not 0 <= ms <= MAX_DELAY_MS:
            raise invalid(f"the delay is {ms} ms, it must be 0 to {MAX_DELAY_MS} (100 years)")
        return f"+{ms}"
    if delay is not None:
        raise invalid("a message has a delay or a due time, not both")
    return str(unix_ms(due))


def _spread(due: str, window: Seconds | None, id: bytes) -> str:
    """Adds a part of the window that depends on the id alone, so that a repetition asks for the same time."""
    if window is None:
        return due
    later = zlib.crc32(b"spread" + id) % (milliseconds(window) + 1)
    return f"+{int(due) + later}" if due[0] == "+" else str(int(due) + later)


def _encoded(what: str, text: Id) -> bytes:
    if not isinstance(text, bytes | str):
        raise invalid(f"{what} is a str or bytes, not {type(text).__name__}: encode it, such as by json.dumps")
    return encoded(text)


def encoded(text: Id) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def shown(id: bytes) -> str:
    """An id as text. `encoded` gives the same bytes back, also if they are no UTF-8."""
    return id.decode("utf-8", "surrogateescape")


def checked_id(id: Id) -> bytes:
    raw = _encoded("an id", id)
    if not 1 <= len(raw) <= 200 or _CONTROL.search(raw):
        start = raw[:40].decode(errors="replace")
        text = f"message id {start!r} of {len(raw)} bytes: an id has 1 to 200 bytes, none of them a control byte"
        raise invalid(text)
    return raw


_last_us = 0


def new_id() -> bytes:
    """An id that no other message has: the time, then random digits. Ids made later sort later.

    Redis is quicker with such ids, and with those of at most 30 bytes, which fit 32 with its own two.
    """
    global _last_us
    _last_us = max(_last_us + 1, time.time_ns() // 1_000)
    return b"%013x%s" % (_last_us, secrets.token_hex(8).encode())
