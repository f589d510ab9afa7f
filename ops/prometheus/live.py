"""A real Prometheus with the rules of this folder, beside a private Redis and processes of dueq, for programs of ops/checks."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from processes import DUEQ, ENVIRONMENT, PORTS, ROOT, home, program, start, target, until

RULES = ROOT / "ops/prometheus/dueq.rules.yml"
PROMETHEUS = program("scripts/packaged", "prometheus")


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
