"""Redis servers that tests kill and freeze, and a proxy that loses replies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

# As the Rust tests: the first server of the variable, or the one that scripts/server finds.
PROGRAM = os.environ.get("DUEQ_TEST_SERVERS", "").split(":")[0]
if not PROGRAM:
    script = Path(__file__).parents[3] / "scripts" / "server"
    PROGRAM = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def free_port() -> int:
    """A port whose number + 10,000 is a port too: servers of a cluster use both."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        if port < 55_000:
            return port


class RedisServer:
    """A server of its own, which keeps its data through a kill."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self._folder = tempfile.mkdtemp(prefix="dueq-py-")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/"

    @property
    def client(self) -> Any:
        # redis-py types the results of its blocking and its async client alike.
        return redis.Redis(port=self.port, socket_timeout=5)

    def replica(self) -> RedisServer:
        """A server that has what this one has."""
        self.client.config_set("repl-diskless-sync-delay", 0)  # it waits 5 s for further replicas otherwise
        replica = RedisServer("--replicaof", f"127.0.0.1 {self.port}")
        while self.client.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.01)
        return replica

    def start(self) -> None:
        words = ["--port", str(self.port), "--dir", self._folder, "--save", "", "--appendonly", "yes", *self._options]
        # With everysec a busy disk delays the writes, and a kill loses calls that were answered.
        words += ["--appendfsync", "always"]
        self._process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                return
            except redis.RedisError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def calls(self, command: str) -> int:
        """How many calls of a command the server has served."""
        stats = self.client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))

    def meta(self, queue: str, field: str) -> int:
        return int(self.client.hget(f"dueq:{{{queue}}}:meta", field) or 0)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Proxy:
    """Passes bytes to a server. `lose` cuts the next connection whose call matches, once the server has replied.

    With `hold` new connections are then refused until `resume`, so that a test can act before the repetition begins.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._lose: Callable[[bytes], bool] | None = None
        self.lost = asyncio.Event()
        self._holds = False
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"

    def lose(self, matches: Callable[[bytes], bool], *, hold: bool = False) -> None:
        self._lose = matches
        self.lost.clear()
        self._holds = hold

    def resume(self) -> None:
        self._holds = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._holds:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        is_lost = False

        async def forth() -> None:
            nonlocal is_lost
            while data := await reader.read(1 << 16):
                if self._lose is not None and self._lose(data):
                    self._lose, is_lost = None, True
                server_writer.write(data)
                await server_writer.drain()

        async def back() -> None:
            while data := await server_reader.read(1 << 16):
                if is_lost:
                    self.lost.set()
                    return
                writer.write(data)
                await writer.drain()

        pipes = [asyncio.ensure_future(forth()), asyncio.ensure_future(back())]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            writer.close()
            server_writer.close()
            self._pipes.discard(task)
