"""The servers behind a URL: one, the master that Sentinels name, or the masters of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

from redis._parsers.base import BaseParser
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.crc import key_slot
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

RESPONSE_LIMIT = 5.0
"""How long one command may take before its connection is closed."""
CONNECT_LIMIT = 2.0
_REDIRECTS = 5
# Of versions of redis-py that do not keep the code beside the class.
_CODES: dict[type, str] = {kind: code for code, kind in BaseParser.EXCEPTION_CLASSES.items() if isinstance(kind, type)}
Word = str | bytes | int
_PLACEHOLDER = b"\0" + b"-" * 70
# A full server accepts a write after one that needs no memory, within one script.
_TOUCH = (
    "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then "
    "redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end"
)


def _settings() -> dict[str, Any]:
    # redis-py would send a call again by itself, also one that must not be repeated.
    return {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": RESPONSE_LIMIT,
        "socket_connect_timeout": CONNECT_LIMIT,
        "socket_keepalive": True,
        "protocol": 2,
    }


class Server:
    """One server, through a pool of redis-py. A call has its connection for itself."""

    def __init__(self, pool: ConnectionPool, address: str) -> None:
        self._pool = pool
        self.address = address
        self._checked = self._closed = self._in_cluster = False
        self._can_wait: set[str] = set()

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
        async with self.connection() as connection:
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
            await connection.send_command(*words)
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


Send = Callable[[Server, bool], Awaitable[Any]]
"""Calls a server, after ASKING if the second argument is true."""


class Servers:
    """The servers of one URL. Each key has one server at a time."""

    async def is_cluster(self) -> bool:
        raise NotImplementedError

    async def of_key(self, key: str) -> Server:
        raise NotImplementedError

    async def at(self, key: str, send: Send) -> Any:
        """Sends a call to the server of a key."""
        return await send(await self.of_key(key), False)

    async def run(self, verb: str, keys: Sequence[str], arguments: Sequence[Word]) -> Any:
        return await self.at(keys[0], lambda server, asking: server.run(verb, keys, arguments, asking=asking))

    async def run_durably(
        self, verb: str, keys: Sequence[str], arguments: Sequence[Word], durability: Durability
    ) -> tuple[Any, str | DueqError]:
        def send(server: Server, asking: bool) -> Awaitable[Any]:
            return server.run_durably(verb, keys, arguments, durability, asking=asking)

        answer: tuple[Any, str | DueqError] = await self.at(keys[0], send)
        return answer

    async def call(self, key: str, *words: Word) -> Any:
        return await self.at(key, lambda server, asking: server.call(*words, asking=asking))

    async def close(self) -> None:
        raise NotImplementedError


class OneServer(Servers):
    """A single server, or the master of a service that Sentinels watch."""

    def __init__(self, server: Server, sentinel: Sentinel | None = None) -> None:
        self._server = server
        self._sentinel = sentinel

    async def is_cluster(self) -> bool:
        return False

    async def of_key(self, key: str) -> Server:
        return self._server

    async def close(self) -> None:
        await self._server.close()
        if self._sentinel is not None:
            for one in self._sentinel.sentinels:  # redis-py before 8 does not close them together
                await one.aclose()


class Cluster(Servers):
    """The masters of a cluster, by slot."""

    def __init__(self, seeds: list[tuple[str, int]], settings: dict[str, Any]) -> None:
        self._settings = settings
        self._servers: dict[tuple[str, int], Server] = {}
        self._seeds = seeds
        self._ranges: list[tuple[int, int, Server]] = []
        self._moved: dict[int, Server] = {}
        self._refreshing = asyncio.Lock()

    async def is_cluster(self) -> bool:
        return True

    def _at(self, host: str, port: int) -> Server:
        server = self._servers.get((host, port))
        if server is None:
            pool: ConnectionPool = ConnectionPool(host=host, port=port, **self._settings)
            server = self._servers[host, port] = Server(pool, f"{host}:{port}")
        return server

    async def of_key(self, key: str) -> Server:
        slot = key_slot(key.encode())
        if not self._ranges:
            await self._refresh()
        if slot in self._moved:
            return self._moved[slot]
        for first, last, server in self._ranges:
            if first <= slot <= last:
                return server
        raise DueqError(ErrorKind.UNAVAILABLE, Applied.NO, f"no master of the cluster serves slot {slot}")

    async def at(self, key: str, send: Send) -> Any:
        server, asking = await self.of_key(key), False
        for _ in range(_REDIRECTS):
            try:
                return await send(server, asking)
            except DueqError as error:
                if error.code not in ("MOVED", "ASK"):
                    if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) and error.code is None:
                        self._forget()  # a failover may have made another server the master
                    raise
                slot, _, address = error.detail.partition(" ")
                host, _, port = address.rpartition(":")
                asking = error.code == "ASK"
                server = self._at(host or server.address.rpartition(":")[0], int(port))
                if not asking:
                    self._moved[int(slot)] = server
        raise DueqError(ErrorKind.UNAVAILABLE, Applied.NO, "the servers of the cluster redirect in a circle")

    def _forget(self) -> None:
        self._ranges, self._moved = [], {}

    async def _refresh(self) -> None:
        async with self._refreshing:
            if self._ranges:
                return
            last: DueqError | None = None
            known = [*self._servers, *(seed for seed in self._seeds if seed not in self._servers)]
            for host, port in known:
                try:
                    slots = await self._at(host, port).call("CLUSTER", "SLOTS")
                except DueqError as error:
                    last = error
                    continue
                masters = ((first, end, master) for first, end, master, *_ in slots)
                self._ranges = [
                    (first, end, self._at((name or b"").decode() or host, at)) for first, end, (name, at, *_) in masters
                ]
                if self._ranges:
                    return
            raise last or DueqError(ErrorKind.UNAVAILABLE, Applied.NO, "the cluster serves no slots")

    async def close(self) -> None:
        for server in self._servers.values():
            await server.close()


class Unknown(Servers):
    """The server of a plain URL, which says itself whether it belongs to a cluster."""

    def __init__(self, server: Server, cluster: Cluster) -> None:
        self._server = server
        self._one = OneServer(server)
        self._cluster = cluster

    async def is_cluster(self) -> bool:
        return await self._server.is_in_cluster()

    async def _found(self) -> Servers:
        return self._cluster if await self.is_cluster() else self._one

    async def of_key(self, key: str) -> Server:
        return await (await self._found()).of_key(key)

    async def at(self, key: str, send: Send) -> Any:
        return await (await self._found()).at(key, send)

    async def close(self) -> None:
        await self._one.close()
        await self._cluster.close()


def servers_of(url: str) -> Servers:
    """`redis://`, `rediss://`, `unix://`; `redis+cluster://HOST:PORT,...`; `redis+sentinel://HOST:PORT,.../SERVICE`."""
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if base not in ("redis", "rediss", "valkey", "valkeys", "unix") or kind not in ("", "cluster", "sentinel"):
        raise invalid("a URL begins with redis://, rediss:// or unix://, or with redis+cluster:// or redis+sentinel://")
    base = base.replace("valkeys", "rediss").replace("valkey", "redis")
    if not kind:
        try:
            pool: ConnectionPool = ConnectionPool.from_url(f"{base}://{rest}", **_settings())
        except ValueError as error:
            raise invalid(f"the URL cannot be read: {error}") from None
        shared = dict(pool.connection_kwargs)
        if base == "unix":
            return OneServer(Server(pool, shared["path"]))
        host, port = shared.pop("host", "localhost"), shared.pop("port", 6379)
        cluster = Cluster([(host, port)], {**shared, "connection_class": pool.connection_class})
        return Unknown(Server(pool, f"{host}:{port}"), cluster)
    rest, _, query = rest.partition("?")
    user, _, hosts = rest.rpartition("@")
    hosts, _, path = hosts.partition("/")
    settings = _settings() | _credentials(user)
    if kind == "cluster":
        if base == "rediss":
            settings["connection_class"] = SSLConnection
        return Cluster([_place(host, 6379) for host in hosts.split(",")], settings)
    service, _, database = path.partition("/")
    if not service or not (database or "0").isdecimal():
        raise invalid("a URL of Sentinels is redis+sentinel://HOST:PORT[,HOST:PORT...]/SERVICE[/DATABASE]")
    own = {name: values[0] for name, values in parse_qs(query).items()}
    of_sentinels = _settings() | {
        name: own[f"sentinel_{short}"]
        for name, short in (("username", "user"), ("password", "password"))
        if f"sentinel_{short}" in own
    }
    sentinel_of: Any = Sentinel  # redis-py has no types here
    sentinel = sentinel_of([_place(host, 26379) for host in hosts.split(",")], sentinel_kwargs=of_sentinels)
    pool_of: Any = SentinelConnectionPool
    pool = pool_of(service, sentinel, ssl=base == "rediss", db=int(database or 0), **settings)
    return OneServer(Server(pool, f"the master of {service}"), sentinel)


def _credentials(user: str) -> dict[str, str]:
    name, _, password = user.partition(":")
    found = {"username": unquote(name), "password": unquote(password)}
    return {key: value for key, value in found.items() if value}


def _place(text: str, port: int) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text, str(port)
    if not host or not number.isdecimal():
        raise invalid(f"the URL names a host as HOST:PORT, not {text!r}")
    return host.strip("[]"), int(number)
