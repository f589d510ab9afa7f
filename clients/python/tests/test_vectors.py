"""Runs the vectors that a test of the Rust library checks: `clients/vectors`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dueq import DueqError, Durability, Message, MessageEnd, Schedule, StoredMessage, replies
from dueq.errors import of_reply
from dueq.routes import Keys, PartitionMap, id_of_follow_up, index_of

VECTORS = Path(__file__).parents[2] / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    lines = (VECTORS / f"{name}.jsonl").read_text().splitlines()
    assert lines
    return [json.loads(line) for line in lines]


def fault(error: DueqError) -> dict[str, Any]:
    return {"kind": error.kind, "applied": error.applied, "code": error.code, "retryable": error.retryable}


def raises(wanted: dict[str, Any], call: Any) -> None:
    with pytest.raises(DueqError) as caught:
        call()
    assert fault(caught.value) == wanted


def test_ids_belong_to_the_partitions_of_the_rust_library() -> None:
    for line in vectors("routing"):
        id = bytes.fromhex(line["id_hex"])
        for count, index in line["index_of"].items():
            assert index_of(id, int(count)) == index
        assert id_of_follow_up(id, 1).hex() == line["follow_up_hex"]


def test_keys_and_bad_names() -> None:
    for line in vectors("keys"):
        if "error" in line:
            raises(line["error"], lambda line=line: Keys(line["queue"], line["tag"]))
        else:
            keys = Keys(line["queue"], line["tag"])
            assert [list(keys.ten), keys.wake, keys.notice] == [line["keys"], line["wake"], line["notice"]]


def test_maps_and_the_fences_of_calls() -> None:
    for line in vectors("maps"):
        if "error" in line:
            raises(line["error"], lambda line=line: PartitionMap.parse("orders", line["map"]))
            continue
        map = PartitionMap.parse("orders", line["map"])
        assert (map.epoch, list(map.old), list(map.new)) == (line["epoch"], line["old"], line["new"])
        for id, steps in line["calls"].items():
            assert [[step.tag, step.fence] for step in map.steps(id.encode())] == steps


def test_error_codes_say_whether_the_call_was_applied() -> None:
    for line in vectors("errors"):
        error = of_reply("here", line["reply"])
        assert fault(error) == {name: line[name] for name in ("kind", "applied", "code", "retryable")}, line


def test_messages_are_encoded_as_the_rust_library_does() -> None:
    for line in vectors("messages"):
        given: dict[str, Any] = {}
        for name, value in line["options"].items():
            if name.endswith("_us"):
                given[name[:-3]] = timedelta(microseconds=value)
            else:
                given[{"due_ms": "due", "expires_at_ms": "expires_at"}.get(name, name)] = value
        given.setdefault("id", "a")
        if "error" in line:
            raises(line["error"], lambda given=given: Message("rate it", **given))
            continue
        message = Message("rate it", **given)
        words = [word if isinstance(word, str) else word.decode() for word in message.arguments]
        assert (words, message.repeatable) == (line["arguments"], line["repeatable"])


def test_item_results_are_decoded_as_the_rust_library_does() -> None:
    for line in vectors("results"):
        if "error" in line:
            raises(line["error"], lambda line=line: replies.result(line["verb"], line["result"]))
        else:
            found = replies.result(line["verb"], line["result"])
            assert (found.outcome, found.ms, found.state) == (line["outcome"], line.get("ms"), line.get("state")), line


def test_repeated_pushes_are_judged_as_the_rust_library_does() -> None:
    for line in vectors("verdicts"):
        assert replies.verdict(line["result"], line["repeated"], line["latest_start_us"]) == line["then"], line


def raw(value: Any) -> Any:
    """The reply as redis-py returns it."""
    return (
        [raw(part) for part in value]
        if isinstance(value, list)
        else value.encode()
        if isinstance(value, str)
        else value
    )


def test_whole_replies_are_decoded_as_the_rust_library_does() -> None:
    for line in vectors("replies"):
        verb, reply = line["verb"], raw(line["reply"])
        if verb == "claim":

            def decode(reply: Any = reply) -> dict[str, Any]:
                read = replies.Reply.read("claim", reply)
                left, granted = replies.claim(read)
                return {
                    "header": {name: getattr(read.header, name) for name in read.header.__slots__},
                    "left": left,
                    "granted": [
                        {
                            name: value.decode() if isinstance(value := getattr(one, name), bytes) else value
                            for name in one.__slots__
                            if name != "is_tick"
                        }
                        for one in granted
                    ],
                }
        else:

            def decode(reply: Any = reply) -> dict[str, Any]:
                found = replies.get(replies.Reply.read("get", reply))
                fields = {} if found is None else {name: getattr(found, name) for name in found.__slots__}
                fields = {name: value.decode() if isinstance(value, bytes) else value for name, value in fields.items()}
                fields.pop("id", None)
                return {
                    "stored": fields if isinstance(found, StoredMessage) else None,
                    "end": fields if isinstance(found, MessageEnd) else None,
                }

        if "error" in line:
            raises(line["error"], decode)
        else:
            assert decode() == {name: line[name] for name in line if name not in ("verb", "reply")}


def test_what_replicas_confirm_is_judged_as_by_the_rust_library() -> None:
    for line in vectors("changes"):
        assert replies.is_change(line["verb"], line["result"]) is line["is_change"], line
    for line in vectors("waits"):
        local = line.get("local")
        if local is None:
            durability = Durability.replicated(line["replicas"], 1)
        else:
            durability = Durability.fsynced(local=local, replicas=line["replicas"], timeout=1)
        assert (durability.shortfall(line["answer"]) == "") is line["confirmed"], line


def test_schedules_are_declared_as_by_the_rust_library() -> None:
    for line in vectors("schedules"):
        given: dict[str, Any] = {
            name.removesuffix("_us").removesuffix("_ms"): timedelta(microseconds=value) if name[-3:] == "_us" else value
            for name, value in line["options"].items()
        }
        words = [word if isinstance(word, str) else word.decode() for word in Schedule(line["name"], **given).arguments]
        assert words == line["arguments"]
