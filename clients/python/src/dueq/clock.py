"""An estimate of the server's clock from the times in its replies. Nothing here reads the wall clock."""

from __future__ import annotations

_DRIFT = 1_000
"""Two clocks drift apart by one part in this many at most."""


class Clock:
    """Bounds of the server's clock minus the monotonic clock. Both in microseconds; arguments in seconds."""

    __slots__ = ("_least", "_most", "_taken")

    def __init__(self) -> None:
        self._least = self._most = self._taken = 0.0

    @property
    def known(self) -> bool:
        return self._taken > 0

    def observe(self, sent: float, received: float, server_us: int) -> None:
        """A reply bounds the difference. Earlier bounds count too, unless the server's clock was set since."""
        least, most = server_us - received * 1e6, server_us - sent * 1e6
        if self.known:
            drift = (received - self._taken) * 1e6 / _DRIFT + 1
            both_least, both_most = max(least, self._least - drift), min(most, self._most + drift)
            if both_least <= both_most:
                least, most = both_least, both_most
        self._least, self._most, self._taken = least, most, received

    def _loose(self, at: float) -> float:
        return abs(at - self._taken) * 1e6 / _DRIFT + 1

    def earliest_us(self, at: float) -> int:
        return int(at * 1e6 + self._least - self._loose(at))

    def latest_us(self, at: float) -> int:
        return int(at * 1e6 + self._most + self._loose(at)) + 1

    def spread_us(self, at: float) -> float:
        """By how much the estimate may be off."""
        return self._most - self._least + 2 * self._loose(at)

    def at_ms(self, server_ms: int) -> float:
        """The monotonic time at which the server's clock shows this Unix millisecond."""
        return server_ms / 1e3 - (self._least + self._most) / 2e6
