"""The checker sees each fault that it looks for."""

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from check import Message, Run, judge, runs_of

ID, PAYLOAD, LEASE_MS = b"\xff a", b"\0\r\n", 4_000
MESSAGE = Message("go", ID, PAYLOAD, 1_000)
RUN = Run("go", ID, 1, hashlib.sha1(PAYLOAD).hexdigest(), 1_000)


@pytest.mark.parametrize(
    ("wrong", "runs"),
    [
        (set(), [RUN]),
        (set(), [RUN, replace(RUN, attempt=2, at_ms=5_000)]),
        ({"lost"}, []),
        ({"early"}, [replace(RUN, at_ms=999)]),
        ({"doubled"}, [RUN, replace(RUN, at_ms=9_000)]),
        ({"doubled"}, [RUN, replace(RUN, attempt=2, at_ms=2_500)]),
        ({"other bytes"}, [replace(RUN, hash="0")]),
        ({"never pushed"}, [RUN, replace(RUN, id=b"b")]),
    ],
)
def test_each_fault_is_seen(wrong: set[str], runs: list[Run]) -> None:
    assert {kind for kind, found in judge([MESSAGE], runs, LEASE_MS).items() if found} == wrong


def test_both_forms_of_lines_are_read_and_a_torn_one_is_not() -> None:
    plain = f"1000 {ID.hex()} 1 {RUN.hash}\n".encode()
    found = {"attempt": 1, "id": "?", "id_base64": base64.b64encode(ID).decode()}
    found["payload_base64"] = base64.b64encode(PAYLOAD).decode()
    assert runs_of("go", plain + f"1000 {json.dumps(found)}\n1000 6".encode()) == [RUN, RUN]
