"""What must confirm a change before its caller gets a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import invalid
from .model import Seconds, milliseconds

MAX_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Durability:
    """What must confirm pushes, cancels, reschedules and `run_now`: see `Queue.durability`.

    If fewer confirm within the timeout, the call raises `UNCONFIRMED`: the master has made the change and may lose it.
    """

    command: str
    local: bool
    replicas: int
    timeout_ms: int

    @classmethod
    def replicated(cls, replicas: int, timeout: Seconds) -> Durability:
        """The memory of so many replicas (WAIT), within 1 ms to a minute."""
        return cls._checked("WAIT", False, replicas, timeout)

    @classmethod
    def fsynced(cls, *, local: bool, replicas: int = 0, timeout: Seconds) -> Durability:
        """The disk of the master if `local`, and those of so many replicas (WAITAOF of Redis 7.2 and Valkey)."""
        return cls._checked("WAITAOF", local, replicas, timeout)

    @classmethod
    def _checked(cls, command: str, local: bool, replicas: int, timeout: Seconds) -> Durability:
        made = cls(command, local, replicas, milliseconds(timeout))
        if replicas < 0 or not (local or replicas):
            raise invalid(f"a durability with {replicas} replicas waits for nothing")
        if not 1 <= made.timeout_ms <= MAX_TIMEOUT_MS:
            raise invalid(f"the timeout is {made.timeout_ms} ms, it must be 1 to {MAX_TIMEOUT_MS} (a minute)")
        return made

    def words(self, *, probe: bool = False) -> tuple[str | int, ...]:
        """The command that waits; as a probe it only finds out whether the server can wait."""
        replicas, timeout_ms = (0, 1) if probe else (self.replicas, self.timeout_ms)
        return (self.command, *((int(self.local),) if self.command == "WAITAOF" else ()), replicas, timeout_ms)

    def shortfall(self, answer: Any) -> str:
        """What has not confirmed, by the answer to the command; empty if nothing is missing."""
        found = answer if isinstance(answer, list) else [1, answer]
        if len(found) != 2 or not all(isinstance(count, int) for count in found):
            return f"{self.command} answered {answer!r}"
        own, others = found
        missing = []
        if self.local and own < 1:
            missing.append("the master's disk did not confirm it")
        if others < self.replicas:
            missing.append(f"only {others} of {self.replicas} replicas confirmed it")
        return f"{' and '.join(missing)} within {self.timeout_ms} ms" if missing else ""
