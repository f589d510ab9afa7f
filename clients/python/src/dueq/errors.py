"""The one error type: what failed, whether to try again, and whether the call took effect."""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """What went wrong."""

    INVALID_INPUT = "invalid_input"
    """A name, id, payload, time or option is out of its range, or the client is used wrongly."""
    UNAVAILABLE = "unavailable"
    """The server cannot be reached, or does not serve calls now."""
    TIMEOUT = "timeout"
    """No reply came in time."""
    UNCONFIRMED = "unconfirmed"
    """The master has made the change, and too few replicas or disks have confirmed it: a failover may undo it."""
    FULL = "full"
    """The queue's limit of messages, or the server's memory, is reached."""
    DENIED = "denied"
    """The user or password is wrong, or the user lacks a right."""
    UNSUPPORTED = "unsupported"
    """The server is too old or may evict keys, or the queue has an unknown layout."""
    SERVER = "server"
    """The server replied with another error, or with something that is not the protocol."""
    INTERNAL = "internal"
    """A defect of this library."""


class Applied(StrEnum):
    """Whether a failed call took effect."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"
    """The reply was lost: `Queue.get` shows what the queue has, or repeat the call if that is harmless."""


class DueqError(Exception):
    """The error of any call. `id` is that of the message, if it may have been stored."""

    def __init__(
        self,
        kind: ErrorKind,
        applied: Applied,
        text: str,
        code: str | None = None,
        detail: str = "",
        id: bytes | None = None,
    ) -> None:
        super().__init__(kind, applied, text, code, detail, id)  # all of them, so that it can be pickled
        self.kind = kind
        self.applied = applied
        self.text = text
        self.code = code
        """The code of the server's error, such as `NOPERM`, or `TOO_LARGE` for a payload above the limit."""
        self.detail = detail
        """What the server said after the code."""
        self.id = id

    def __str__(self) -> str:
        return self.text

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later. `applied` says whether repeating it is harmless."""
        return self.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT, ErrorKind.UNCONFIRMED, ErrorKind.FULL)

    @property
    def is_remapped(self) -> bool:
        """Whether the partition has another map than the caller."""
        return self.code in ("REMAPPED", "BEHIND")

    def marked(self, applied: Applied | None = None, *, id: bytes | None = None, note: str = "") -> DueqError:
        """This error with another `applied`, the id of its message, or a note at the end of its text."""
        error = DueqError(self.kind, applied or self.applied, self.text + note, self.code, self.detail, id or self.id)
        error.__cause__ = self.__cause__
        return error

    def of_repeated(self) -> DueqError:
        """This error as that of a call whose earlier try may have been applied."""
        if self.applied is Applied.UNKNOWN:
            return self
        return self.marked(Applied.UNKNOWN, note=" (an earlier try may have taken effect)")

    def of_message(self, id: bytes) -> DueqError:
        """A copy for the caller of one message, with its id unless the call was not applied."""
        return self.marked(id=None if self.applied is Applied.NO else id)


def invalid(text: str, code: str | None = None) -> DueqError:
    return DueqError(ErrorKind.INVALID_INPUT, Applied.NO, text, code=code)


def unconfirmed(verb: str, shortfall: str) -> DueqError:
    text = f"{verb}: the master has done it, but {shortfall}; a failover may undo it: the same call again waits again"
    return DueqError(ErrorKind.UNCONFIRMED, Applied.YES, text)


def unexpected(verb: str, what: object) -> DueqError:
    text = f"the reply to {verb} is not the protocol: {str(what)[:200]!r} (`dueq doctor QUEUE` finds why)"
    return DueqError(ErrorKind.SERVER, Applied.UNKNOWN, text)


_REFUSED_FOR_NOW = {"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "ASK"}
_REFUSED_FOR_NOW |= {"MISCONF", "NOREPLICAS", "NOSCRIPT", "REMAPPED", "BEHIND"}
_KINDS = {
    "MOVED": ErrorKind.UNSUPPORTED,
    "OOM": ErrorKind.FULL,
    "NOAUTH": ErrorKind.DENIED,
    "WRONGPASS": ErrorKind.DENIED,
    "NOPERM": ErrorKind.DENIED,
    "LAYOUT": ErrorKind.UNSUPPORTED,
    "BADARGS": ErrorKind.INVALID_INPUT,
    "HELD": ErrorKind.INVALID_INPUT,
}
# Scripts read each key before they write, so these come before the first write.
_BEFORE_WRITES = frozenset(("BADKEYS", "BADNOW", "WRONGTYPE"))
_LACKS_RIGHT = ("The user executing the script ", "ACL failure in script: ")
_HINTS = {
    "OOM": "its memory is full: raise maxmemory; workers drain it meanwhile",
    "NOAUTH": "give user and password in the URL: redis://USER:PASSWORD@HOST/",
    "WRONGPASS": "give user and password in the URL: redis://USER:PASSWORD@HOST/",
    "MISCONF": "it cannot persist: look at its log and disk",
    "WRONGTYPE": "another program uses a key of this queue: `dueq doctor QUEUE` names it",
    "READONLY": "it is a replica: redis-cli ROLE names its master",
    "CLUSTERDOWN": "it reaches no majority of masters, or slots are served by none: redis-cli CLUSTER NODES",
    "NOREPLICAS": "too few replicas follow it: redis-cli INFO replication",
    "BUSY": "a script runs for long: redis-cli SCRIPT KILL, or FUNCTION KILL, ends it",
    "MOVED": "the queue is on another node of this cluster: connect with redis+cluster://",
    "LAYOUT": "install a newer version of this package",
    "NOPERM": "give the user the rights that `dueq acl ROLE QUEUE` lists",
}


def of_reply(address: str, text: str) -> DueqError:
    """The error for an error reply such as `LAYOUT this queue has layout 5`."""
    code, _, detail = text.partition(" ")
    # Redis does not roll back a script that fails, and names the script in the text.
    in_script = "script: " in detail
    denied_in_script = in_script and (code == "NOPERM" or (code == "ERR" and detail.startswith(_LACKS_RIGHT)))
    applied = Applied.NO
    if denied_in_script:
        kind, applied = ErrorKind.DENIED, Applied.UNKNOWN
    elif code in _REFUSED_FOR_NOW or (code == "ERR" and detail.startswith("max number of clients")):
        kind = ErrorKind.UNAVAILABLE
    elif code == "UNBLOCKED":  # the server became a replica while the call was blocked
        kind, applied = ErrorKind.UNAVAILABLE, Applied.UNKNOWN
    elif code in _KINDS:
        kind = _KINDS[code]
    else:
        kind = ErrorKind.SERVER
        if in_script and code not in _BEFORE_WRITES:
            applied = Applied.UNKNOWN
    hint = _HINTS["NOPERM"] if denied_in_script else _HINTS.get(code)
    did = "refused" if applied is Applied.NO else "stopped halfway"
    message = f"redis at {address} {did}: {text}" + (f" ({hint})" if hint else "")
    return DueqError(kind, applied, message, code=code, detail=detail)
