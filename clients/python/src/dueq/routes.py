"""The keys of a partition, the map of a queue's partitions, and the partition of an id."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from .errors import Applied, DueqError, ErrorKind, invalid

_SUFFIXES = ("scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta")
_BAD_IN_NAME = re.compile(r"[\x00-\x1f\x7f/{}]")
_TAG = re.compile(r"-|0|[1-9][0-9]{0,8}")
_EPOCH = re.compile(r"[1-9][0-9]{0,15}")
HOME = "-"


class Keys:
    """The ten keys of one partition, in the order of KEYS; its wake-up list, and the channel of its notices."""

    __slots__ = ("meta", "notice", "ten", "wake")

    def __init__(self, queue: str, tag: str = HOME) -> None:
        if not 1 <= len(queue.encode()) <= 128 or _BAD_IN_NAME.search(queue):
            rule = "a name has 1 to 128 bytes, no control characters and none of / { }"
            raise invalid(f"queue name {queue[:40]!r} of {len(queue.encode())} bytes: {rule}")
        base = f"dueq:{{{queue if tag == HOME else f'{queue}/{tag}'}}}:"
        self.ten = tuple(base + suffix for suffix in _SUFFIXES)
        self.meta, self.wake, self.notice = self.ten[-1], base + "wake", base + "notice"


@dataclass(frozen=True, slots=True)
class Step:
    """Where a call goes: the tag of a partition, and the fence `m7`, or `p7` of a probe; empty without a map."""

    tag: str
    fence: str


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """The tags of a queue's partitions, before and after a change. `new` is empty while the queue is being deleted."""

    epoch: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, queue: str, text: str) -> PartitionMap:
        """Reads `EPOCH|OLD TAGS|NEW TAGS`."""
        parts = text.split("|")
        try:
            epoch, old, new = parts
            if not _EPOCH.fullmatch(epoch) or int(epoch) >= 1 << 53:
                raise ValueError("no epoch")
            map = cls(int(epoch), _tags(old), _tags(new), text)
            if not map.old:
                raise ValueError("no partition 0")
        except ValueError as error:
            why = f"the map of the partitions of queue {queue} cannot be read: {error} in {text[:200]!r}"
            raise DueqError(ErrorKind.SERVER, Applied.NO, f"{why} (`dueq doctor {queue}`)") from None
        return map

    def steps(self, id: bytes) -> list[Step]:
        """The calls that name this id, in their order: while the partitions change, first a probe at the old one."""
        if not self.new:
            return []
        old, new = self.old[index_of(id, len(self.old))], self.new[index_of(id, len(self.new))]
        last = Step(new, f"m{self.epoch}")
        return [last] if old == new else [Step(old, f"p{self.epoch}"), last]

    @property
    def tags(self) -> tuple[str, ...]:
        """Every partition that may have messages."""
        return tuple(dict.fromkeys(self.old + self.new))


def _tags(text: str) -> tuple[str, ...]:
    tags = tuple(text.split(" ")) if text else ()
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise ValueError("a tag that is neither - nor a number up to 999999999")
    if tags and tags[0] != HOME:
        raise ValueError("no partition 0")
    if len(tags) > 256:
        raise ValueError("more than 256 partitions")
    if len(set(tags)) != len(tags):
        raise ValueError("a tag twice")
    return tags


def _part(id: bytes) -> bytes:
    """The part of an id that decides: the bytes between its first `{` and the next `}`, else all of it."""
    start = id.find(b"{") + 1
    end = id.find(b"}", start)
    return id[start:end] if start and end > start else id


def index_of(id: bytes, partitions: int) -> int:
    """The index of the partition that holds the id."""
    return zlib.crc32(_part(id)) * partitions >> 32


def id_of_follow_up(parent: bytes, number: int) -> bytes:
    """An id for a follow-up message that belongs to the partition of its parent."""
    base = parent if len(_part(parent)) < len(parent) else b"{%s}" % parent
    return b"%s/%d" % (base, number)
