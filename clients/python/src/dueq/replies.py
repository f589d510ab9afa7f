"""Decodes the replies of scripts, and the results of their items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import Applied, DueqError, ErrorKind, invalid, unexpected
from .model import TRACE_PARENT, EndKind, MessageEnd, MessageState, StoredMessage, shown


@dataclass(frozen=True, slots=True)
class Header:
    """The first element of every reply. A `head_ms` or `deadline_ms` of None: nothing is scheduled or leased."""

    now_us: int
    incarnation: str
    seq: int
    head_ms: int | None
    deadline_ms: int | None
    paused: bool
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and between which times of the monotonic clock the call was made."""

    header: Header
    body: list[Any]
    sent: float = 0.0
    received: float = 0.0
    missing: str | DueqError = ""
    """Which replicas or disks have not confirmed it, or the error of the wait for them."""

    @classmethod
    def read(
        cls, verb: str, raw: Any, sent: float = 0.0, received: float = 0.0, missing: str | DueqError = ""
    ) -> Reply:
        try:
            head = raw[0]
            now_us, incarnation, seq, head_ms, deadline_ms, paused = head[:6]
            epoch = head[6] if len(head) > 6 else None
            for number in (now_us, seq, head_ms, deadline_ms, paused, epoch or 0):
                if not isinstance(number, int):
                    raise TypeError("no integer")
            header = Header(now_us, incarnation.decode(), seq, _time(head_ms), _time(deadline_ms), paused != 0, epoch)
        except (TypeError, ValueError, LookupError, AttributeError):
            raise unexpected(verb, raw) from None
        return cls(header, raw[1:], sent, received, missing)


def _time(ms: int) -> int | None:
    # A negative time other than -1 was not written by dueq: it counts as past, so that due work is not missed.
    return None if ms == -1 else max(ms, 0)


@dataclass(frozen=True, slots=True)
class Granted:
    """A message that a claim granted."""

    id: bytes
    payload: bytes
    due_ms: int
    attempt: int
    crashes: int
    is_last_attempt: bool
    trace_parent: str | None
    expires_at_ms: int | None
    cost: int
    snoozes: int
    is_tick: bool = False


def claim(reply: Reply) -> tuple[int, list[Granted]]:
    """The number of ready messages that the claim left, and what it granted."""
    try:
        left, _deadline, ids, payloads, details = reply.body[:5]
        limit = reply.body[5] if len(reply.body) > 5 else None
        if len(details) == 1 < len(ids):
            details = details * len(ids)
        granted = [
            _granted(id, payload, detail, limit) for id, payload, detail in zip(ids, payloads, details, strict=True)
        ]
    except (TypeError, ValueError, AttributeError):
        raise unexpected("claim", reply.body) from None
    return left, granted


def _granted(id: bytes, payload: bytes, detail: bytes, queue_limit: int | None) -> Granted:
    due, attempt, *rest = detail.split(b" ", 2)
    due_ms, tries = int(due), int(attempt)
    if not rest or not rest[0]:  # most messages have no options
        return Granted(id, payload, due_ms, tries, 0, tries >= (queue_limit or tries + 1), None, None, 1, 0)
    words = _words(rest[0])
    crashes = _number(words, "crashes", 0)
    limit = _number(words, "max_attempts", queue_limit or 0)
    parent = words.get("traceparent", "")
    return Granted(
        id,
        payload,
        due_ms,
        tries,
        crashes,
        0 < limit <= max(tries - 1 - crashes, 0) + 1,
        # Handlers copy it into HTTP headers, so a malformed one is left out.
        parent if TRACE_PARENT.fullmatch(parent) else None,
        _expiry(words, due_ms),
        _number(words, "cost", 1),
        _number(words, "snoozes", 0),
        "tick" in words,
    )


def _words(options: bytes) -> dict[str, str]:
    pairs = (word.partition("=") for word in options.decode("utf-8", "replace").split(" "))
    return {name: value for name, _, value in pairs}


def _number(words: dict[str, str], name: str, default: int) -> int:
    value = words.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() else default


def _expiry(words: dict[str, str], due_ms: int) -> int | None:
    if by := _number(words, "expires_by", 0):
        return by
    expires = words.get("expires", "")
    if expires.startswith("+") and expires[1:].isdecimal():
        return due_ms + int(expires)
    return int(expires) if expires.isdecimal() else None


def get(reply: Reply, id: bytes = b"") -> StoredMessage | MessageEnd | None:
    """The message, or how it ended; None if the queue knows neither."""
    try:
        pairs, *rest = reply.body
        if not pairs:
            if not rest:
                return None
            how, when, until = rest[:3]
            return MessageEnd(EndKind(how.decode()), when, until or None)
        fields = {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
        words = _words(fields["options"])
        return StoredMessage(
            shown(id),
            MessageState(fields["state"].decode()),
            fields["time_ms"],
            fields["failures"],
            fields["crashes"],
            _number(words, "max_attempts", 0) or None,
            _number(words, "cost", 1),
            fields["error"].decode("utf-8", "replace"),
            fields["payload"],
            fields.get("next_due"),
        )
    except (TypeError, ValueError, LookupError, AttributeError):
        raise unexpected("get", reply.body) from None


@dataclass(frozen=True, slots=True)
class Result:
    """A decoded item result: its outcome, and its time or state if it has one."""

    outcome: str
    ms: int | None = None
    state: MessageState | None = None


_STATES = {state.value: state for state in MessageState}
_PLAIN = {"LEASED": "leased", "DEAD": "dead", "ABSENT": "absent"}
_LOST = {"GONE": "gone", "LOST": "lost"}
# By verb: words, each with its outcome. A word in `_TIMED` of the verb has a time behind it.
_WORDS: dict[str, dict[str, str]] = {
    "push": {
        "CREATED": "created",
        "EXISTS": "exists",
        "MOVED": "moved",
        "NEXT": "next",
        "REMEMBERED": "remembered",
        "FINISHED": "finished",
        "USED": "finished",
    },
    "cancel": {"CANCELLED": "cancelled", **_PLAIN},
    "reschedule": {"MOVED": "moved", "CONFLICT": "conflict", **_PLAIN},
    "run_now": {"MOVED": "moved", "ALREADY": "already", **_PLAIN},
    "ack": {"OK": "done", **_LOST},
    "retry": {"SCHEDULED": "scheduled", "DEAD": "dead", "DROPPED": "dropped", **_LOST},
    "throttle": {"OK": "until", **_LOST},
}
_WORDS |= {"upsert": _WORDS["push"], "again": _WORDS["ack"], "release": _WORDS["ack"], "bury": _WORDS["ack"]}
_WORDS |= {"snooze": _WORDS["retry"], "extend": _WORDS["throttle"], "ack_push": _WORDS["push"]}
_TIMED = {
    "push": ("REMEMBERED",),
    "upsert": ("REMEMBERED",),
    "ack_push": ("REMEMBERED",),
    "reschedule": ("MOVED", "CONFLICT"),
    "retry": ("SCHEDULED",),
    "snooze": ("SCHEDULED",),
    "throttle": ("OK",),
    "extend": ("OK",),
}


def result(verb: str, text: str) -> Result:
    """Decodes the result of one item, such as `EXISTS scheduled`. Raises if the item was refused."""
    word, _, detail = text.partition(" ")
    outcome = _WORDS[verb].get(word)
    if outcome is None:
        raise _refusal(verb, word, detail)
    if word in _TIMED.get(verb, ()):
        if not detail.isdecimal():
            raise unexpected(verb, text)
        return Result(outcome, int(detail))
    if outcome == "exists":
        state = _STATES.get(detail)
        if state is None:
            raise unexpected(verb, text)
        return Result(outcome, None, state)
    if word == "CANCELLED" and detail == "next":
        return Result("next")
    return Result(outcome)


_CHANGES = {
    "push": ("CREATED", "EXISTS", "MOVED", "NEXT"),
    "cancel": ("CANCELLED",),
    "reschedule": ("MOVED",),
    "run_now": ("MOVED", "ALREADY"),
}


def is_change(verb: str, text: str) -> bool:
    """Whether replicas or disks must confirm before the caller gets this result, also of a change made before."""
    return text.partition(" ")[0] in _CHANGES["push" if verb == "upsert" else verb]


def _refusal(verb: str, word: str, detail: str) -> DueqError:
    if word == "INVALID":
        return invalid(detail, "TOO_LARGE" if detail.startswith("payload has ") else None)
    if word == "FULL":
        what = "push with shorter windows" if detail.startswith("this queue may remember") else "work it off"
        return DueqError(
            ErrorKind.FULL, Applied.NO, f"FULL: {detail}; {what}, or raise the limit: dueq configure QUEUE"
        )
    return unexpected(verb, f"{word} {detail}")


def verdict(text: str, repeated: bool, latest_start_us: int) -> str:
    """What becomes of the result of a push: `final`, sent `again` as a new call, or `unknown`."""
    word, _, detail = text.partition(" ")
    if word not in ("FINISHED", "EXPIRED"):
        return "final"
    if not repeated:
        # The estimate of the server's clock was wrong, or another client changed a message of this id meanwhile.
        return "again"
    if word == "EXPIRED":
        return "unknown"
    ms, dot, fraction = detail.partition(".")
    if dot and ms.isdecimal() and fraction.isdecimal() and int(ms) * 1_000 + int(fraction) <= latest_start_us:
        return "unknown"
    return "final"
