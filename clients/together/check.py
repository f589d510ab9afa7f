"""Judges what the workers have recorded: what was lost, early, doubled without a lapsed lease, or of other bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Message:
    language: str
    id: bytes
    payload: bytes
    due_ms: int


@dataclass(frozen=True)
class Run:
    language: str
    id: bytes
    attempt: int
    hash: str
    at_ms: int


def runs_of(language: str, text: bytes) -> list[Run]:
    """Lines `TIME_MS ID ATTEMPT HASH` in hexadecimal digits, or `TIME_MS JSON` of a command of `dueq work`.

    A line without its end was never finished: its worker was killed before.
    """
    runs = []
    for line in text.split(b"\n")[:-1]:
        at_ms, _, rest = line.partition(b" ")
        if rest[:1] == b"{":
            found = json.loads(rest)
            id = base64.b64decode(found["id_base64"]) if "id_base64" in found else found["id"].encode()
            hash = hashlib.sha1(base64.b64decode(found["payload_base64"])).hexdigest()
            runs.append(Run(language, id, found["attempt"], hash, int(at_ms)))
        else:
            hex_id, attempt, hash = rest.decode().split(" ")
            runs.append(Run(language, bytes.fromhex(hex_id), int(attempt), hash, int(at_ms)))
    return runs


def judge(messages: list[Message], runs: list[Run], lease_ms: int) -> dict[str, list[object]]:
    """What is wrong, by kind. All of it must be empty."""
    of_id: defaultdict[bytes, list[Run]] = defaultdict(list)
    for run in runs:
        of_id[run.id].append(run)
    wrong: dict[str, list[object]] = {"lost": [], "early": [], "doubled": [], "other bytes": [], "never pushed": []}
    for message in messages:
        found = sorted(of_id.pop(message.id, []), key=lambda run: run.attempt)
        hash = hashlib.sha1(message.payload).hexdigest()
        if not found:
            wrong["lost"].append(message)
        wrong["early"] += [run for run in found if run.at_ms < message.due_ms]
        wrong["other bytes"] += [run for run in found if run.hash != hash]
        # A handler may begin some time after its claim, so a lapsed lease is seen as half of it at least.
        # No other cause of a second run is as slow, and only a lapsed lease charges an attempt here.
        wrong["doubled"] += [
            (run, later)
            for run, later in pairwise(found)
            if later.attempt == run.attempt or later.at_ms < run.at_ms + lease_ms / 2
        ]
    wrong["never pushed"] += of_id.values()
    return wrong
