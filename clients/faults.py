"""Plants the faults of faults.toml, each in a copy of its client, and checks that a test turns red.

usage: scripts/clients/faults [NAME...]     a NAME is that of a client, of a fault, or CLIENT/FAULT

A fault is caught if its client still builds and its test fails. First each test runs without a fault:
one that fails then proves nothing. Exits with 1 if a fault is not caught, or if its text does not occur once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "target" / "clients" / "faults"
LIMIT_S = 300
LARGE = ("node_modules", "target", "dist")
"""Folders that are not copied; of these `node_modules` is linked."""


def copied(client: str) -> Path:
    """A copy of a client in a copy of the tree, whose other parts are links."""
    folder = COPY / "clients" / client
    if COPY.exists():
        shutil.rmtree(COPY)
    folder.parent.mkdir(parents=True)
    for part in ROOT.iterdir():
        if part.name not in ("clients", "target") and not part.name.startswith("."):
            (COPY / part.name).symlink_to(part)
    (COPY / "clients" / "vectors").symlink_to(ROOT / "clients" / "vectors")
    source = ROOT / "clients" / client
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*LARGE, ".*_cache", "__pycache__"))
    if (source / "node_modules").exists():
        (folder / "node_modules").symlink_to(source / "node_modules")
    return folder


def fails(command: str, folder: Path) -> str:
    """What a command wrote, if it fails or hangs; else an empty text."""
    # A file, because a server that a dead test leaves behind keeps a pipe open.
    with (COPY / "output").open("w+") as output:
        try:
            run = subprocess.run(command, shell=True, cwd=folder, stdout=output, stderr=output, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"no end within {LIMIT_S} s"
        output.seek(0)
        return output.read() or "no output" if run.returncode else ""


def verdict(fault: dict[str, str], build: str, green: dict[tuple[str, str], bool]) -> str:
    client, test = fault["client"], fault["test"]
    folder = copied(client)
    if (client, test) not in green:
        red = fails(f"{build} && {test}", folder)
        print(red, end="", file=sys.stderr)
        green[client, test] = not red
    if not green[client, test]:
        return "ITS TEST IS RED WITHOUT IT"
    file = folder / fault["file"]
    text = file.read_text()
    if text.count(fault["from"]) != 1:
        return f"ITS TEXT OCCURS {text.count(fault['from'])} TIMES in {fault['file']}"
    file.write_text(text.replace(fault["from"], fault["to"]))
    if red := fails(build, folder):
        print(red, end="", file=sys.stderr)
        return "DOES NOT BUILD"
    return "caught" if fails(test, folder) else "NOT CAUGHT"


def main(names: list[str]) -> int:
    table = tomllib.loads((ROOT / "clients" / "faults.toml").read_text())
    available = os.environ["CLIENTS"].split()
    green: dict[tuple[str, str], bool] = {}
    bad, seen = 0, set[str]()
    for fault in table["fault"]:
        client, name = fault["client"], f"{fault['client']}/{fault['name']}"
        if names and not {client, fault["name"], name} & set(names):
            continue
        seen |= {client, fault["name"], name}
        if client not in available:
            print(f"LEFT OUT: {name}")
            continue
        found = verdict(fault, table["build"][client], green)
        print(f"{name}: {found}", flush=True)
        bad += found != "caught"
    if unknown := set(names) - seen:
        print(f"no fault has the name {', '.join(sorted(unknown))}")
        return 2
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
