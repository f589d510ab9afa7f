"""Writes src/dueq/_scripts.py: the scripts of lua/dist that this package calls, each with its SHA-1."""

from __future__ import annotations

import hashlib
from pathlib import Path

VERBS = """
    ack ack_push again amend arrive beat bury cancel claim depart extend get held promote push reap release remap
    requeue reschedule retry run_now schedule schedules snooze throttle upsert
"""


def write(root: Path) -> None:
    dist = root.parents[1] / "lua" / "dist"
    target = root / "src" / "dueq" / "_scripts.py"
    if not dist.is_dir():  # an sdist brings the written file
        if target.exists():
            return
        raise SystemExit(f"{dist} is missing: build this package within the repository of dueq, or from its sdist")
    lines = ['"""Written by hatch_build.py from lua/dist."""\n', "SCRIPTS: dict[str, tuple[str, str]] = {"]
    for verb in VERBS.split():
        text = (dist / f"{verb}.lua").read_text()
        lines.append(f"    {verb!r}: ({hashlib.sha1(text.encode()).hexdigest()!r}, {text!r}),")
    written = "\n".join([*lines, "}"]) + "\n"
    if not target.exists() or target.read_text() != written:
        target.write_text(written)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # called as a program, in a checkout without hatchling
    pass
else:

    class ScriptsHook(BuildHookInterface):  # type: ignore[type-arg]
        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            write(Path(self.root))


if __name__ == "__main__":
    write(Path(__file__).resolve().parent)
