"""A private Redis and processes of dueq, for programs of ops/checks. Each process has a port and a log of its own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 120
# The machine may reach others by a proxy.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"


def skip(why):
    print(why)
    sys.exit(77)


def program(*command):
    """The path that this command prints. Ends the check as skipped if the machine lacks the program."""
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else skip(found.stderr.strip() or f"{command[-1]} is not available")


DUEQ = os.environ.get("DUEQ") or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/dueq"
if not os.access(DUEQ, os.X_OK):
    skip(f"{DUEQ} is not built")
REDIS = program("scripts/server")

folder = tempfile.TemporaryDirectory(prefix="dueq-check-")
home = Path(folder.name)
started = []
PORTS = {}
ENVIRONMENT = dict(os.environ)


def name_processes(*names):
    """Gives each process a free port."""
    sockets = [socket.socket() for _ in names]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    PORTS.update((name, one.getsockname()[1]) for name, one in zip(names, sockets))
    for one in sockets:
        one.close()
    ENVIRONMENT["REDIS_URL"] = f"redis://{target('redis')}"


def target(name):
    return f"127.0.0.1:{PORTS[name]}"


def start(name, *command, **environment):
    log = open(home / f"{name}.log", "w")
    process = subprocess.Popen(command, env={**ENVIRONMENT, **environment}, cwd=home, stdout=log, stderr=log,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    started.append(process)
    return process


def serve(name, **environment):
    return start(name, DUEQ, "serve", "--listen", target(name), **environment)


def until(what, found):
    end = time.monotonic() + LIMIT_S
    while True:
        error = ""
        try:
            if found():
                return
        except (OSError, AssertionError) as failed:
            error = f" ({failed})"
        assert time.monotonic() < end, f"not within {LIMIT_S} s: {what}{error}"
        time.sleep(0.2)


def main(run, outcome):
    """Runs the check, prints its outcome or the ends of all logs, and ends all processes."""
    try:
        run()
        print(f"{len(started)} processes, {outcome}")
    except AssertionError as error:
        print(f"FAILED: {error}")
        for log in sorted(home.glob("*.log")):
            print(f"--- {log.name}\n" + "".join(log.open().readlines()[-15:]))
        sys.exit(1)
    finally:
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        folder.cleanup()
