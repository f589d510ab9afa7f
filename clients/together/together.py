"""All languages push to one queue and work on it at once, while its partitions change.

Every second one of the workers is killed (-9) and started again.

usage: together.py [MESSAGES] < COMMANDS     (20,000 without a number; REDIS_URL names an empty server)
COMMANDS has a line for each language: its name, and the program that takes `push QUEUE FILE` and `work QUEUE`.
Fails if anything is lost, early, of other bytes, or doubled without a lapsed lease.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import redis
from check import Message, Run, judge, runs_of

QUEUE = "together"
LEASE_MS = 4_000
A_SECOND = 900
CHANGE_AT = 5
"""The second in which the queue begins to get three partitions, whose ids every language must find."""
LIMIT = 60
"""After so many seconds in which no message was acked the rest counts as lost."""
# What each language must pass on as it is. Ids have no control bytes.
IDS = [b"order:%d", "größe 🦀 %d".encode(), b" {%d}/%00\"'\\ ", b"-%d" + b"x" * 150, b"\xff\xfe%d\x80"]
PAYLOADS = [b"", b"%d", b"\0%d\0", b"\r\n%d\n\n", "🦀 größe %d".encode(), b"\xff\xfe%d\xc3", bytes(range(256)) * 4]


def messages_of(languages: list[str], count: int) -> list[Message]:
    began_ms, chance = time.time_ns() // 1_000_000 + 2_000, random.Random(1)
    messages = []
    for number, language in zip(range(count), itertools.cycle(languages)):
        # The program of the Rust library takes ids as text.
        id = chance.choice(IDS[:-1] if language == "rust" else IDS).replace(b"%d", b"%d" % number)
        payload = chance.choice(PAYLOADS).replace(b"%d", b"%d" % number)
        messages.append(Message(language, id, payload, began_ms + number * 1_000 // A_SECOND))
    return messages


def line_of(message: Message) -> str:
    line = {"payload_base64": base64.b64encode(message.payload).decode(), "at": str(message.due_ms)}
    if message.language == "rust":
        line["id"] = message.id.decode()
    else:
        line["id_base64"] = base64.b64encode(message.id).decode()
    return json.dumps(line) + "\n"


class Workers:
    """A worker of each language. Each process has a file of its own for what it records."""

    def __init__(self, commands: dict[str, list[str]], folder: Path) -> None:
        self._commands = commands
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = self.kills = 0
        for language in commands:
            self._start(language)

    def _start(self, language: str) -> None:
        self._started += 1
        path = self._folder / f"{language}.{self._started}.runs"
        environment = {**os.environ, "LEASE_MS": str(LEASE_MS), "RECORD": str(path)}
        with path.open("ab") as record, (self._folder / f"{language}.log").open("ab") as log:
            self._processes[language] = subprocess.Popen(
                [*self._commands[language], "work", QUEUE], stdout=record, stderr=log, env=environment
            )

    def kill(self, language: str) -> None:
        process = self._processes[language]
        assert process.poll() is None, f"the worker of {language} has ended by itself"
        process.kill()
        process.wait()
        self.kills += 1

    def kill_and_start(self, language: str) -> None:
        self.kill(language)
        self._start(language)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def runs(self) -> list[Run]:
        files = self._folder.glob("*.runs*")
        return [run for file in files for run in runs_of(file.name.split(".")[0], file.read_bytes())]


def acked(server: redis.Redis) -> int:
    return sum(int(server.hget(key, "acked") or 0) for key in server.scan_iter(f"dueq:{{{QUEUE}*}}:meta"))


def handled(workers: Workers, commands: dict[str, list[str]], messages: list[Message], folder: Path) -> None:
    """Pushes all messages, changes the partitions of the queue meanwhile, and waits until all are handled."""

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        with (folder / "jobs.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    jobs = {}
    for language, command in commands.items():
        file = folder / f"{language}.ndjson"
        file.write_text("".join(line_of(message) for message in messages if message.language == language))
        jobs[f"producer of {language}"] = start([*command, "push", QUEUE, str(file)])
    server = redis.Redis.from_url(os.environ["REDIS_URL"])
    done = silent = 0
    for second, language in enumerate(itertools.cycle(commands)):
        time.sleep(1)
        if second == CHANGE_AT and "rust" in commands:
            jobs["operator"] = start([os.environ["DUEQ_PROGRAM"], "partitions", QUEUE, "3"])
        for name, job in jobs.items():
            assert not job.poll(), f"the {name} has failed"
        before, done = done, acked(server)
        if done == len(messages) and all(job.poll() == 0 for job in jobs.values()):
            return
        silent = silent + 1 if done == before else 0
        if silent == LIMIT:
            print(f"{done} of {len(messages)} messages are acked, and no other for {LIMIT} s")
            return
        workers.kill_and_start(language)


def report(messages: list[Message], runs: list[Run], languages: list[str]) -> None:
    pushed = {message.id: message for message in messages}
    pairs = Counter((pushed[run.id].language, run.language) for run in runs if run.id in pushed)
    late: defaultdict[str, list[int]] = defaultdict(list)
    for run in runs:
        if run.attempt == 1 and run.id in pushed:
            late[run.language].append(run.at_ms - pushed[run.id].due_ms)
    print(f"{'pushed by, handled by':<22}" + "".join(f"{name:>12}" for name in languages))
    for producer in languages:
        print(f"{producer:<22}" + "".join(f"{pairs[producer, worker]:>12}" for worker in languages))
    print(f"{'late p50, ms':<22}" + "".join(f"{sorted(late[name])[len(late[name]) // 2]:>12}" for name in languages))
    assert all(pairs[a, b] for a in languages for b in languages), "a language handled nothing of another"


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    commands = {words[0]: words[1:] for words in map(shlex.split, sys.stdin) if words}
    with tempfile.TemporaryDirectory(prefix="dueq-together-") as name:
        folder, began = Path(name), time.monotonic()
        messages = messages_of(list(commands), count)
        workers = Workers(commands, folder)
        try:
            handled(workers, commands, messages, folder)
        except BaseException:
            for log in folder.glob("*.log"):
                print(f"== {log.name}: {log.read_text()[-2_000:]}")
            raise
        finally:
            workers.close()
        seconds, runs = time.monotonic() - began, workers.runs()
    wrong = judge(messages, runs, LEASE_MS)
    again = sum(run.attempt > 1 for run in runs)
    counts = ", ".join(f"{len(found)} {kind}" for kind, found in wrong.items())
    print(f"{count} messages in {seconds:.0f} s, {workers.kills} kills, {again} runs after a lapsed lease: {counts}")
    for kind, found in wrong.items():
        for one in found[:3]:
            print(f"{kind}: {one}")
    report(messages, runs, list(commands))
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
