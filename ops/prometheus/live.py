"""A private Redis, processes of dueq, and a real Prometheus with the rules of this folder, for programs of ops/checks."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "ops/prometheus/dueq.rules.yml"
LIMIT_S = 120
# The machine may reach others by a proxy.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"


def skip(why):
    print(why)
    sys.exit(77)


def program(*command):
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else skip(f"{command[-1]} is not available")


DUEQ = os.environ.get("DUEQ") or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/dueq"
if not os.access(DUEQ, os.X_OK):
    skip(f"{DUEQ} is not built")
REDIS = program("scripts/server")
PROMETHEUS = program("scripts/packaged", "prometheus")

folder = tempfile.TemporaryDirectory(prefix="dueq-prometheus-")
home = Path(folder.name)
started = []


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


PORTS = {}
ENVIRONMENT = dict(os.environ)


def name_processes(*names):
    """Gives each process a port of its own."""
    PORTS.update(zip(names, free_ports(len(names))))
    ENVIRONMENT["REDIS_URL"] = f"redis://127.0.0.1:{PORTS['redis']}"


def start(name, *command):
    log = open(home / f"{name}.log", "w")
    process = subprocess.Popen(command, env=ENVIRONMENT, cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    started.append(process)
    return process


def serve(name):
    return start(name, DUEQ, "serve", "--listen", f"127.0.0.1:{PORTS[name]}")


def work(name, *arguments):
    return start(name, DUEQ, "work", "--metrics", str(PORTS[name]), *arguments)


def dueq(*arguments):
    done = subprocess.run([DUEQ, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"


def redis(*command):
    with socket.create_connection(("127.0.0.1", PORTS["redis"])) as server:
        words = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
        server.sendall(f"*{len(command)}\r\n{words}".encode())
        answer = server.recv(65536).decode()
    assert not answer.startswith("-"), answer
    return answer


def api(path, **parameters):
    url = f"http://127.0.0.1:{PORTS['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def query(expression):
    """The values by labels that are numbers."""
    result = api("query", query=expression)["result"]
    return [float(one["value"][1]) for one in result if one["value"][1] != "NaN"]


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


def firing():
    """The alerts that fire, each with its queue, its process or its finding."""
    labels = [one["labels"] for one in api("alerts")["alerts"] if one["state"] == "firing"]
    whose = lambda of: of.get("queue") or of.get("instance") or of.get("finding", "")
    return {(of["alertname"], whose(of)) for of in labels}


def fires(stage, *expected):
    """Waits until exactly these alerts fire. Those of earlier stages end meanwhile."""
    expected = set(expected)

    def as_expected():
        found = firing()
        assert found == expected, f"{sorted(found)} fire"
        return True

    began = time.monotonic()
    until(f"{stage}: exactly {sorted(expected)} fire", as_expected)
    # Nothing else follows within the time that most alerts wait.
    time.sleep(2.5)
    assert firing() == expected, f"{stage}: {sorted(firing())} fire, not {sorted(expected)}"
    print(f"{stage}: {time.monotonic() - began:.0f} s, {', '.join(sorted(name for name, _ in expected)) or 'none'}", flush=True)


def shorten(changes):
    """Writes the rules with shorter times; `changes` has regular expressions and what replaces them. Returns the text."""
    text = RULES.read_text()
    for long, short in changes:
        assert re.search(long, text), f"the rules have no {long}"
        text = re.sub(long, short, text)
    (home / "rules.yml").write_text(text)
    return text


def start_prometheus():
    targets = lambda kind: [target(name) for name in PORTS if name.startswith(kind)]
    jobs = [{"job_name": f"dueq-{kind}", "static_configs": [{"targets": targets(kind)}]} for kind in ["serve", "work"]]
    (home / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"], "scrape_configs": jobs,
    }))
    start("prometheus", PROMETHEUS, "--config.file", home / "prometheus.yml", "--storage.tsdb.path", home / "data",
          "--web.listen-address", target("prometheus"), "--log.level", "warn")


def target(name):
    return f"127.0.0.1:{PORTS[name]}"


def main(run):
    """Runs the check, and ends all processes."""
    try:
        run()
        print(f"{len(started)} processes, each alert as meant")
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
