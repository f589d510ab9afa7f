"""Renders the chart with each file of values/, validates what comes out for each version of Kubernetes, and checks that
each file of refused/ is refused with the reason of its first line. A comment at the head of a file of values can name
the release and the ports of Redis. usage: check.py HELM, in the environment of kubernetes-validate, from the top of the
repository."""

import glob
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import kubernetes_validate
import yaml

HELM, CHART = sys.argv[1], "ops/helm/dueq"
OLDEST = (1, 30)
# Kinds of operators: kubernetes-validate does not know them.
CUSTOM = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
RULES = yaml.safe_load(open("ops/prometheus/dueq.rules.yml"))
NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"  # of a Service; other kinds allow more
LABEL_VALUE = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"


def helm(*command):
    return subprocess.run([HELM, *command], capture_output=True, text=True)


def head(values, word):
    """What a comment at the head of the file says, such as `# release: a`."""
    found = re.search(rf"^# {word}: (.*)$", open(values).read(), re.MULTILINE)
    return found and found[1]


def render(values):
    # The chart asks for no version but the oldest, so what it renders is the same for all.
    return helm("template", head(values, "release") or "a", CHART, "--namespace", "queues", "--kube-version", VERSIONS[0],
                "--values", values)


def is_newer_than_oldest(version):
    return tuple(map(int, version.split(".")[:2])) >= OLDEST


def pod_is_restricted_and_ends_in_time(kind, values):
    pod = kind["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == security
    assert {volume["name"] for volume in pod["volumes"] or []} == {m["name"] for m in container["volumeMounts"] or []}
    # As Kubernetes replaces them.
    args = [arg.replace("$$", "$") for arg in container["args"]]
    if args[0] == "work":
        worker = next(w for w in values["workers"] if kind["metadata"]["name"].endswith(f"-work-{w['name']}"))
        assert args[args.index("--") + 1:] == worker["queues"], args
        assert worker.get("exec", worker.get("http")) in args, args
        grace = int(re.fullmatch("([0-9]+)s", args[args.index("--grace") + 1])[1])
        # After the grace the program ends its commands within 7 s.
        assert pod["terminationGracePeriodSeconds"] >= grace + 10
        assert ("replicas" in kind["spec"]) == ("keda" not in worker)
    else:
        assert pod["terminationGracePeriodSeconds"] >= 45


def labels_are_legal(node, where):
    """Of the object, its pods and its selectors."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        if key in ("labels", "matchLabels", "nodeSelector"):
            for name, value in child.items():
                assert isinstance(name, str) and isinstance(value, str), f"{where}: {name!r}: {value!r}"
                assert re.fullmatch(LABEL_VALUE, value), f"{where}: {name}: {value}"
            assert child.get("app.kubernetes.io/name", "dueq") == "dueq", f"{where}: {child}"
        elif isinstance(child, (dict, list)):
            labels_are_legal(child, where)


def scales_a_deployment_in_time(scaled, kinds):
    assert scaled["scaleTargetRef"]["name"] in (kind["metadata"]["name"] for kind in kinds if kind["kind"] == "Deployment")
    assert scaled["pollingInterval"] <= 30, "a storm that is seen a minute ahead leaves half of it to start pods"
    assert scaled["minReplicaCount"] <= scaled["maxReplicaCount"]


def check(values):
    linted = helm("lint", "--strict", CHART, "--values", values)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    text, rendered = yaml.safe_load(open(values)), render(values)
    assert rendered.returncode == 0, f"{values}: {rendered.stderr}"
    kinds = list(filter(None, yaml.safe_load_all(rendered.stdout)))
    for kind in kinds:
        where = f"{values}: {kind['kind']} {kind['metadata']['name']}"
        assert re.fullmatch(NAME, kind["metadata"]["name"]), where
        labels_are_legal(kind, where)
        if kind["kind"] == "Deployment":
            pod_is_restricted_and_ends_in_time(kind, text)
        if kind["kind"] == "PrometheusRule":
            assert kind["spec"] == RULES, where
        if kind["kind"] == "ScaledObject":
            scales_a_deployment_in_time(kind["spec"], kinds)
        if kind["kind"] == "NetworkPolicy":
            ports = [str(each["port"]) for each in kind["spec"]["egress"][1]["ports"]]
            assert ", ".join(ports) == head(values, "ports of Redis"), f"{where}: {ports}"
        for version in VERSIONS if kind["kind"] not in CUSTOM else ():
            try:
                kubernetes_validate.validate(kind, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                sys.exit(f"{where}, Kubernetes {version}: {error.message}")
    return len(kinds)


def refuse(values):
    reason = open(values).readline().removeprefix("# ").strip()
    rendered = render(values)
    assert rendered.returncode != 0, f"{values} is accepted"
    assert reason in rendered.stderr, f"{values}: no {reason!r} in {rendered.stderr}"


schemas = os.path.join(os.path.dirname(kubernetes_validate.__file__), "kubernetes-json-schema", "v*-local-strict")
VERSIONS = [os.path.basename(path)[1:].removesuffix("-local-strict") for path in glob.glob(schemas)]
VERSIONS = sorted(filter(is_newer_than_oldest, VERSIONS), key=lambda version: tuple(map(int, version.split("."))))
accepted, refused = sorted(glob.glob("ops/helm/values/*.yaml")), sorted(glob.glob("ops/helm/refused/*.yaml"))
assert len(VERSIONS) >= 8 and len(accepted) >= 12 and refused
with ThreadPoolExecutor(4) as pool:
    kinds = sum(pool.map(check, accepted))
    list(pool.map(refuse, refused))
print(f"{len(accepted)} sets of values valid for Kubernetes {VERSIONS[0]} to {VERSIONS[-1]} ({kinds} objects), "
      f"{len(refused)} refused")
