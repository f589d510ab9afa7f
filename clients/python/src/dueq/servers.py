"""The servers behind a URL: one, the master that Sentinels name, or the masters of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.crc import key_slot

from .durability import Durability
from .errors import Applied, DueqError, ErrorKind, invalid
from .server import RESPONSE_LIMIT, Server, Word

CONNECT_LIMIT = 2.0
_REDIRECTS = 5


def _settings() -> dict[str, Any]:
    # redis-py would send a call again by itself, also one that must not be repeated.
    return {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": RESPONSE_LIMIT,
        "socket_connect_timeout": CONNECT_LIMIT,
        "socket_keepalive": True,
        "protocol": 2,
        # Calls are bounded by `Server`, and a worker needs two connections for each partition.
        "max_connections": 1 << 20,
    }


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
        known = "redis, rediss or unix, or redis+cluster or redis+sentinel"
        raise invalid(f"the scheme of the URL is {scheme if '://' in url else ''!r}: it must be {known}")
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
