"""One server: its connections, whether it is fit for queues, and the errors of its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis._parsers.base import BaseParser
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from ._scripts import SCRIPTS
from .durability import Durability
from .errors import Applied, DueqError, ErrorKind, invalid, of_reply
from .replies import Reply

MOST_CALLS = 64
"""How many scripts a client calls at once on one server; more wait for their turn."""
RESPONSE_LIMIT = 5.0
"""How long one command may take before its connection is closed."""
# Of versions of redis-py that do not keep the code beside the class.
_CODES: dict[type, str] = {kind: code for code, kind in BaseParser.EXCEPTION_CLASSES.items() if isinstance(kind, type)}
Word = str | bytes | int
_PLACEHOLDER = b"\0" + b"-" * 70
# A full server accepts a write after one that needs no memory, within one script.
_TOUCH = (
    "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then "
    "redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end"
)


class Server:
    """One server, through a pool of redis-py. A call has its connection for itself."""

    def __init__(self, pool: ConnectionPool, address: str) -> None:
        self._pool = pool
        self.address = address
        self._checked = self._closed = self._in_cluster = False
        self._can_wait: set[str] = set()
        self._turns = asyncio.Semaphore(MOST_CALLS)

    async def is_in_cluster(self) -> bool:
        """Whether the server says that it belongs to a cluster."""
        if not self._checked:
            async with self.connection():
                pass
        return self._in_cluster

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AbstractConnection]:
        """A connection to write to and read from. The first call to a server checks it."""
        if self._closed:
            raise invalid("the client is closed: make a new one")
        try:
            connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (TimeoutError, RedisError, OSError) as error:
            raise self._unreached(error) from error
        try:
            if not self._checked:
                await self._check(connection)
            yield connection
        finally:
            await self._pool.release(connection)

    async def call(self, *words: Word, asking: bool = False) -> Any:
        async with self.connection() as connection:
            return await self._exchange(connection, *words, asking=asking)

    async def run(self, verb: str, keys: Sequence[str], arguments: Sequence[Word], *, asking: bool = False) -> Any:
        async with self._turns, self.connection() as connection:
            return await self._evaluate(connection, verb, keys, arguments, asking)

    async def run_durably(
        self, verb: str, keys: Sequence[str], arguments: Sequence[Word], durability: Durability, *, asking: bool = False
    ) -> tuple[Any, str | DueqError]:
        """Calls a script and waits. Returns its reply, and what has not confirmed it, or the error of the wait.

        WAIT counts the writes of its own connection, so a write that changes nothing comes before it:
        a script that finds its work done writes nothing, and the first caller may have got no confirmation.
        """
        async with self.connection() as connection:
            if durability.command not in self._can_wait:
                await self._probe(connection, durability)
            raw = await self._evaluate(connection, verb, keys, arguments, asking)
            if Reply.read(verb, raw).header.incarnation == "":
                return raw, ""  # the queue does not exist, so there is nothing to lose
            limit = RESPONSE_LIMIT + durability.timeout_ms / 1_000
            try:
                await self._exchange(connection, "EVAL", _TOUCH, 1, keys[5], _PLACEHOLDER, asking=asking)
                return raw, durability.shortfall(await self._exchange(connection, *durability.words(), limit=limit))
            except DueqError as error:
                if error.code in ("MOVED", "ASK"):
                    text = f"the keys are at another node now: {error}"
                    return raw, DueqError(ErrorKind.UNAVAILABLE, Applied.UNKNOWN, text)
                return raw, error

    async def _probe(self, connection: AbstractConnection, durability: Durability) -> None:
        """Refuses a server that cannot wait, before any change."""
        try:
            await self._exchange(connection, *durability.words(probe=True))
        except DueqError as error:
            detail = error.detail.lower()
            if "unknown command" in detail:
                why = "waiting for disks needs WAITAOF: Redis 7.2 or newer, or Valkey"
            elif "appendonly is disabled" in detail:
                why = "it keeps no append-only file: CONFIG SET appendonly yes"
            else:
                raise error.marked(Applied.NO) from error
            text = f"redis at {self.address} is not fit: {why}"
            raise DueqError(ErrorKind.UNSUPPORTED, Applied.NO, text) from error
        self._can_wait.add(durability.command)

    async def _evaluate(
        self, connection: AbstractConnection, verb: str, keys: Sequence[str], arguments: Sequence[Word], asking: bool
    ) -> Any:
        """Calls a script by its hash; loads it where the server does not have it."""
        sha, text = SCRIPTS[verb]
        words = ("EVALSHA", sha, len(keys), *keys, *arguments)
        try:
            return await self._exchange(connection, *words, asking=asking)
        except DueqError as error:
            if error.code != "NOSCRIPT":
                raise
        await self._exchange(connection, "SCRIPT", "LOAD", text)
        return await self._exchange(connection, *words, asking=asking)

    async def listen(self, channel: str, heard: Callable[[bytes | None], None]) -> None:
        """Passes on what is published to a shard channel, and None once it is subscribed. Ends with an error."""
        async with self.connection() as connection:
            silent = False
            try:
                await connection.send_command("SSUBSCRIBE", channel)
                while True:
                    message = await connection.read_response(disable_decoding=True, timeout=RESPONSE_LIMIT)
                    if message is None:
                        if silent:
                            raise RedisTimeout("no pong")
                        await connection.send_command("PING")
                        silent = True
                        continue
                    silent = False
                    if message[0] == b"sunsubscribe":  # the slot has moved to another server
                        raise RedisConnectionError("the subscription has ended")
                    if message[0] in (b"smessage", b"ssubscribe"):
                        heard(message[2] if message[0] == b"smessage" else None)
            except (TimeoutError, RedisError, OSError) as error:
                raise self._failed(error) from error
            finally:
                await connection.disconnect(nowait=True)

    async def _exchange(
        self, connection: AbstractConnection, *words: Word, asking: bool = False, limit: float | None = None
    ) -> Any:
        try:
            if asking:
                await connection.send_command("ASKING")
                await connection.read_response()
            await connection.send_packed_command(_packed(words))
            if limit is None:
                return await connection.read_response(disable_decoding=True)
            answer = await connection.read_response(disable_decoding=True, timeout=limit)
            if answer is None:  # redis-py raises nothing at a limit that it is given
                await connection.disconnect(nowait=True)
                raise RedisTimeout("no answer to the wait")
            return answer
        except (TimeoutError, RedisError, OSError) as error:
            raise self._failed(error) from error

    async def _check(self, connection: AbstractConnection) -> None:
        """Refuses a server that is too old, or that may evict a queue. Without a right to INFO nothing is checked."""
        try:
            text = (await self._exchange(connection, "INFO", "server", "memory", "cluster")).decode()
        except DueqError as error:
            if error.applied is Applied.UNKNOWN or error.kind is ErrorKind.UNAVAILABLE:
                # Only INFO may have been applied, and the call itself was not sent.
                raise error.marked(Applied.NO) from error
            text = ""
        facts = dict(line.partition(":")[::2] for line in text.splitlines())
        version = facts.get("valkey_version") or facts.get("redis_version", "7.0")
        policy = facts.get("maxmemory_policy", "")
        if int(version.split(".")[0]) < 7:
            why = f"it has version {version}, and dueq needs Redis 7.0 or Valkey 7.2 or newer"
        elif policy.startswith("allkeys"):
            why = f"its maxmemory-policy {policy} evicts messages: set noeviction"
        else:
            self._checked, self._in_cluster = True, facts.get("cluster_enabled") == "1"
            return
        raise DueqError(ErrorKind.UNSUPPORTED, Applied.NO, f"redis at {self.address} is refused: {why}")

    def _failed(self, error: Exception) -> DueqError:
        """The error of a call that was sent."""
        if isinstance(error.__context__, ReadOnlyError):  # a pool of Sentinel reports a demoted master as a lost one
            return of_reply(self.address, "READONLY the server is a replica now")
        if isinstance(error, ResponseError | BusyLoadingError | AuthenticationError) or _code(error):
            return of_reply(self.address, _reply_text(error))
        if isinstance(error, InvalidResponse):
            text = f"the reply of redis at {self.address} cannot be read: {error}"
            return DueqError(ErrorKind.SERVER, Applied.UNKNOWN, text)
        if isinstance(error, RedisTimeout | TimeoutError):
            text = f"redis at {self.address} did not answer within {RESPONSE_LIMIT:g} s"
            return DueqError(ErrorKind.TIMEOUT, Applied.UNKNOWN, text)
        text = f"the connection to redis at {self.address} was lost: {error}"
        return DueqError(ErrorKind.UNAVAILABLE, Applied.UNKNOWN, text)

    def _unreached(self, error: Exception) -> DueqError:
        """The error of a connection that could not be opened: nothing was sent."""
        if _code(error):
            return of_reply(self.address, _reply_text(error)).marked(Applied.NO)
        if isinstance(error, AuthenticationError):
            text = f"redis at {self.address} refused the user or password: {error}"
            return DueqError(ErrorKind.DENIED, Applied.NO, text)
        return DueqError(ErrorKind.UNAVAILABLE, Applied.NO, f"cannot reach redis at {self.address}: {error}")

    async def close(self) -> None:
        self._closed = True
        await self._pool.aclose()


def _packed(words: Sequence[Word]) -> bytes:
    """A command in RESP. redis-py joins it piece by piece, which takes most of the time of a long one."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


def _code(error: BaseException) -> str | None:
    """The code of an error reply that redis-py has a class for."""
    return getattr(error, "status_code", None) or _CODES.get(type(error))


def _reply_text(error: Exception) -> str:
    """The error reply as the server sent it: redis-py takes the codes that it knows off the text."""
    text, code = str(error), _code(error)
    if code is None:
        word = text.split(" ")[0]
        return text if word.isupper() else f"ERR {text}"
    return text if text.startswith(code + " ") else f"{code} {text}"
