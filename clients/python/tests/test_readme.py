"""Runs the programs of the README as a reader would, and checks what all packages of dueq agree on."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from servers_for_tests import RedisServer

import dueq
import hatch_build
from dueq._scripts import SCRIPTS

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]


def test_the_programs_of_the_readme_handle_their_message(server: RedisServer) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    printed = []
    for program in programs:
        text = program.replace("redis://127.0.0.1:6379/", server.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text],
            env={"PYTHONPATH": str(PACKAGE / "src")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.stderr == ""
        printed.append(done.stdout)
    assert printed == ["order:42: rate it, attempt 1\n", "order:43\n"]


def test_the_version_is_that_of_the_library() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert dueq.__version__ == manifest["workspace"]["package"]["version"]


def test_the_embedded_scripts_are_those_of_lua_dist() -> None:
    assert set(SCRIPTS) == set(hatch_build.VERBS.split())
    for verb, (_, text) in SCRIPTS.items():
        assert text == (ROOT / "lua" / "dist" / f"{verb}.lua").read_text()
