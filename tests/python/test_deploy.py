# SPDX-License-Identifier: Apache-2.0
"""What deploy/ has: manifests that Kubernetes' schema takes and whose commands make a pool, rules and a dashboard that Prometheus
takes and that name the program's own metrics, settings that the program takes."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import support
from ports import free_port

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = DEPLOY / "kubernetes"
VERSIONS = ("1.29", "1.34")  # of Kubernetes
SMALLER = {"8G": "128M", "32G": "1G"}
SAID_S_MAX = 60
Document = dict[str, Any]


def documents() -> list[Document]:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    return [document for name in listed for document in yaml.safe_load_all((MANIFESTS / name).read_text())]


def program(name: str) -> str:
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    return name


def said_by(*command: str | pathlib.Path, **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SAID_S_MAX, **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def options() -> set[str]:
    return set(re.findall(r"^  --(\S+)", said_by(support.BUILD / "penstockd", "--help"), re.MULTILINE))


def metrics() -> set[str]:
    rows = [line.split("\t") for line in said_by(support.BUILD / "penstockd", "--metrics").splitlines()]
    return {name + end for name, kind, *_ in rows for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}


# ---- Kubernetes ----


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifests(version: str) -> None:
    assert len(documents()) >= 12
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_manifest_with_a_fault_is_refused() -> None:
    broken = next(each for each in documents() if each["kind"] == "StatefulSet")
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def workloads() -> list[Document]:
    return [each for each in documents() if each["kind"] in ("StatefulSet", "DaemonSet")]


def test_manifests_name_what_is_there() -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in documents() if each["kind"] == "Service"}
    settings = {each["metadata"]["name"] for each in documents() if each["kind"] == "ConfigMap"}
    for each in workloads():
        pod, labels = each["spec"]["template"]["spec"], each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
        volumes = {v["name"] for v in pod["volumes"]} | {v["metadata"]["name"] for v in each["spec"].get("volumeClaimTemplates", [])}
        ports = {port["name"] for port in pod["containers"][0]["ports"]}
        for container in pod["containers"] + pod["initContainers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert {source["configMapRef"]["name"] for source in container.get("envFrom", [])} <= settings
        if each["kind"] == "StatefulSet":
            service = services[each["spec"]["serviceName"]]
            assert service["selector"].items() <= labels.items()
            assert {str(port.get("targetPort", port["name"])) for port in service["ports"]} <= ports | {"tree"}


def ports_of(workload: Document) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in workload["spec"]["template"]["spec"]["containers"][0]["ports"]}


def is_selected(workload: Document, selector: Document) -> bool:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return (selector.get("matchLabels", {}).items() <= labels.items()
            and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])))


def test_the_network_lets_in_what_pods_serve() -> None:
    """A policy that names ports, or a service, and the pods behind it agree on them."""
    for each in documents():
        pods = [one for one in workloads() if each["kind"] == "NetworkPolicy" and is_selected(one, each["spec"]["podSelector"])
                or each["kind"] == "Service" and is_selected(one, {"matchLabels": each["spec"]["selector"]})]
        for ports in map(ports_of, pods):
            if each["kind"] == "Service":
                assert all(port.get("targetPort", port["port"]) in {*ports, *ports.values()} for port in each["spec"]["ports"])
            else:
                rules = [{port["port"] for port in rule.get("ports", [])} or {*ports.values()} for rule in each["spec"]["ingress"]]
                assert {*ports.values()} <= set.union(*rules), each["metadata"]["name"]
    selected = [one for one in workloads() for each in documents()
                if each["kind"] == "NetworkPolicy" and is_selected(one, each["spec"]["podSelector"])]
    assert len(selected) == len(workloads())


def test_what_lasts_stays_its_programs_alone() -> None:
    """By fsGroup a volume becomes its group's, and so does what lies in it whenever a pod begins, unless the folder is already:
    penstockd refuses what others may write."""
    for each in workloads():
        if "volumeClaimTemplates" in each["spec"]:
            assert each["spec"]["template"]["spec"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_no_service_is_taken_for_an_option() -> None:
    """Kubernetes tells pods of each service by variables: one named penstock-tree has PENSTOCK_TREE_PORT, with a URL."""
    assert {name for name in options() if name.endswith(("-port", "-service-host", "-service-port"))}
    for each in workloads():
        assert each["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_kustomize_builds_all_of_it(tmp_path: pathlib.Path) -> None:
    """The components, too: three masters with etcd, nodes that know all of them, UCX."""
    kubectl = program("kubectl")
    shutil.copytree(MANIFESTS, tmp_path / "base")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "kustomization.yaml").write_text(json.dumps({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["../base"],
        "components": ["../base/etcd", "../base/ucx"]}))
    made = list(yaml.safe_load_all(said_by(kubectl, "kustomize", str(tmp_path / "site"))))
    for document in made:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in made}
    master, node = (by_name["StatefulSet", f"penstock-{role}"]["spec"] for role in ("master", "node"))
    assert master["replicas"] == 3 and "volumeClaimTemplates" not in master
    arguments = master["template"]["spec"]["containers"][0]["args"]
    assert any(each.startswith("--etcd=") for each in arguments) and not any("pool-map" in each for each in arguments)
    assert sum(each.startswith("--master=") for each in node["template"]["spec"]["containers"][0]["args"]) == 3
    settings = by_name["ConfigMap", "penstock"]["data"]
    assert settings["PENSTOCK_FABRIC"] == "trusted" and settings["PENSTOCK_URL_OPTIONS"] == "?fabric=trusted"
    assert settings["PENSTOCK_URL"] == "pool://" + ",".join(f"penstock-master-{i}.penstock-master:7000" for i in range(3))


class Pod(NamedTuple):
    """A pod of a manifest, on this host: its container's command with other paths and ports."""
    spec: Document
    environment: dict[str, str]
    here: Callable[[str], str]

    def container(self) -> Document:
        return self.spec["containers"][0]

    def arguments(self) -> list[str]:
        return [self.here(each) for each in self.container()["args"]]

    def runs(self, command: list[str]) -> None:
        said_by(*map(self.here, command), env=self.environment)


class Site:
    """The manifests' pods as processes. Ports that pods have of their own become ports of this host."""

    def __init__(self, folder: pathlib.Path, memory: pathlib.Path) -> None:
        self.folder, self.memory = folder, memory
        self.ports: dict[tuple[str, str], int] = {}
        self.settings = next(each for each in documents() if each["kind"] == "ConfigMap")["data"]
        (folder / "secrets").mkdir()
        for name in ("secret", "http-token", "data-token"):
            (folder / "secrets" / name).write_text(os.urandom(16).hex())

    def port(self, pod: str, number: str) -> int:
        if (pod, number) not in self.ports:
            self.ports[pod, number] = free_port()
        return self.ports[pod, number]

    def pod(self, workload: str, number: int) -> Pod:
        name, spec = f"{workload}-{number}", next(each for each in workloads() if each["metadata"]["name"] == workload)
        spec = spec["spec"]["template"]["spec"]
        known = {"metadata.name": name, "metadata.namespace": "penstock", "spec.nodeName": f"host-{number}", "status.podIP": "127.0.0.1"}
        folders = {"/run/penstock": "run", "/var/lib/penstock": "lib", "/var/run/penstock-agent": "socket"}
        for folder in folders.values():
            (self.folder / name / folder).mkdir(parents=True)
        (self.memory / name).mkdir()

        def here(text: str) -> str:
            text = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], text)
            text = re.sub(r"\$(POD_\w+)", lambda found: environment[found[1]], text)
            text = re.sub(r"(penstock-\w+-\d)\.penstock-\w+(?:\.penstock\.svc)?:(\d+)", lambda found: f"127.0.0.1:{self.port(found[1], found[2])}", text)
            text = re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):(\d{4,5})\b",
                          lambda found: found[0] if found[1] == "127.0.0.1" and int(found[2]) in self.ports.values()
                          else f"{found[1]}:{self.port(name, found[2])}", text)
            text = re.sub(r"(-port=)(\d+)", lambda found: found[1] + str(int(found[2]) and self.port(name, found[2])), text)
            text = text.replace("/secrets/", f"{self.folder}/secrets/")
            for path, folder in folders.items():
                text = re.sub(rf"(?<![\w/]){path}(?=[/ ]|$)", str(self.folder / name / folder), text)
            return re.sub(r"=(\d+G)$", lambda found: "=" + SMALLER[found[1]], text)

        environment = {**os.environ, "PATH": f"{support.BUILD}:{os.environ['PATH']}", "PENSTOCK_FOLDER": str(self.memory / name)}
        for each in spec["containers"][0].get("env", []):
            environment[each["name"]] = here(each["value"]) if "value" in each else known[each["valueFrom"]["fieldRef"]["fieldPath"]]
        if spec["containers"][0].get("envFrom"):
            environment |= {key: here(value) for key, value in self.settings.items()}
        pod = Pod(spec, environment, here)
        for each in spec["initContainers"]:
            pod.runs(each["command"])
        return pod


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        yield Site(tmp_path, pathlib.Path(memory))


@contextlib.contextmanager
def process(pod: Pod) -> Iterator[support.Node]:
    node = support.Node(*pod.arguments(), environment=pod.environment)
    with node:
        node.wait_for("ready")
        yield node


def penstock(pod: Pod, *arguments: str, stdin: str = "") -> str:
    return said_by(support.BUILD / "penstock", *arguments, env=pod.environment, input=stdin)


def test_manifests_make_a_pool(site: Site) -> None:
    """Their probes pass, their pods find each other, and what ends a node's pod moves its values to the others first."""
    for tool in "curl", "install":
        program(tool)
    master, nodes = site.pod("penstock-master", 0), [site.pod("penstock-node", number) for number in range(3)]
    with contextlib.ExitStack() as running:
        first = running.enter_context(process(master))
        started = [running.enter_context(process(node)) for node in nodes]
        probes = [(pod, pod.container()["readinessProbe"]["exec"]["command"]) for pod in (master, *nodes)]
        support.wait_until("the pool is ready", lambda: all(
            subprocess.run([*map(pod.here, command)], env=pod.environment, capture_output=True).returncode == 0 for pod, command in probes))
        for i in range(20):
            penstock(nodes[0], "put", f"key{i}", "-", stdin=f"value {i}")
        first.stop()  # both were on a machine that is emptied
        with subprocess.Popen([*map(nodes[0].here, nodes[0].container()["lifecycle"]["preStop"]["exec"]["command"])],
                              env=nodes[0].environment, stderr=subprocess.PIPE) as drain:
            assert drain.stderr and b"nothing listens there" in drain.stderr.readline()
            running.enter_context(process(master))
            assert drain.wait(SAID_S_MAX) == 0, drain.stderr.read()
        started[0].stop()
        assert [penstock(nodes[1], "get", f"key{i}", "-") for i in range(20)] == [f"value {i}" for i in range(20)]


@pytest.mark.parametrize("statuses, ends", [((5, 7, 0), 0), ((7, 1), 1), ((4,), 4)])
def test_a_drain_is_tried_until_a_master_leads(tmp_path: pathlib.Path, statuses: tuple[int, ...], ends: int) -> None:
    """Of a command that says what the real one says of a master that is away, and of one that stands by."""
    command = next(each for each in workloads() if each["metadata"]["name"] == "penstock-node")["spec"]["template"]["spec"]["containers"][0][
        "lifecycle"]["preStop"]["exec"]["command"]
    (tmp_path / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    (tmp_path / "penstock").write_text('#!/bin/sh\ncd "${0%/*}"\nread -r status <statuses\nsed -i 1d statuses\nexit $status\n')
    (tmp_path / "penstock").chmod(0o755)
    done = subprocess.run(command, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=SAID_S_MAX)
    assert done.returncode == ends and (tmp_path / "statuses").read_text() == ""


def test_manifests_make_a_data_store(site: Site) -> None:
    store, agent = site.pod("penstock-store", 0), site.pod("penstock-agent", 0)
    (site.folder / "tree").mkdir()
    (site.folder / "tree" / "file").write_text("text")
    with process(store), process(agent):
        url = f"http://127.0.0.1:{site.port('penstock-store-0', '8081')}"
        environment = {**store.environment, "PENSTOCK_DATA_URL": url,
                       "PENSTOCK_DATA_TOKEN_FILE": str(site.folder / "penstock-store-0" / "run" / "data-token")}
        for command in (("put", "key", f"{site.folder}/tree", "--contents"), ("get", "key", f"{site.folder}/back", "--contents")):
            said_by(support.BUILD / "penstock", "data", *command, env=environment)
        assert (site.folder / "back" / "file").read_text() == "text"
        assert (site.folder / "penstock-agent-0" / "socket" / "socket").is_socket()


# ---- Prometheus and Grafana ----


def alerts() -> list[Document]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "penstock.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[Document]:
    rows = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())["panels"]
    return [panel for row in rows for panel in row.get("panels", [row])]


def test_promtool_takes_the_rules() -> None:
    for command in (("check", "rules", "penstock.rules.yml"), ("test", "rules", "penstock.rules.test.yml"),
                    ("check", "config", "--syntax-only", "scrape.yml")):
        said_by(program("promtool"), *command, cwd=DEPLOY / "prometheus")


def test_rules_and_panels_name_metrics_of_the_program() -> None:
    there = metrics()
    asked = [rule["expr"] for rule in alerts()] + [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(asked) > 100
    for name in {name for expr in asked for name in re.findall(r"\bpenstock_\w+", expr)}:
        assert name in there, name
    rows = [line.split("\t") for line in said_by(support.BUILD / "penstockd", "--metrics").splitlines()]
    labels = {"job", "instance", "le"}.union(*(row[3].split(", ") for row in rows))
    for label in {label for expr in asked for group in re.findall(r"\bby \(([^)]*)\)", expr) for label in group.split(", ")}:
        assert label in labels, label


def test_promtool_takes_the_panels(tmp_path: pathlib.Path) -> None:
    """What a panel asks is a rule that records it."""
    exprs = [target["expr"].replace("$__rate_interval", "5m") for panel in panels() for target in panel["targets"]]
    rules = [{"record": f"panel:{i}", "expr": expr} for i, expr in enumerate(exprs)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    said_by(program("promtool"), "check", "rules", tmp_path / "rules.yml")


def test_every_alert_has_its_page() -> None:
    headings = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "how-to" / "alerts.md").read_text(), re.MULTILINE))
    assert {rule["alert"] for rule in alerts()} == headings
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"


def test_panels_have_numbers_of_their_own() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)


# ---- systemd, and the image ----


@pytest.mark.parametrize("role", ["node", "master", "store"])
def test_settings_of_units_are_the_programs(role: str) -> None:
    names = re.findall(r"^(\w+) = ", (DEPLOY / "systemd" / f"{role}.conf").read_text(), re.MULTILINE)
    assert len(names) > 5 and {name.replace("_", "-") for name in names} <= options()


def test_systemd_takes_the_units(tmp_path: pathlib.Path) -> None:
    analyze = program("systemd-analyze")
    for name, unit in (("penstockd.service", "penstockd.service"), ("penstockd@.service", "penstockd@node.service")):
        text = (support.BUILD / "src" / "daemon" / name).read_text()
        (tmp_path / unit).write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
        done = subprocess.run([analyze, "verify", "--man=no", tmp_path / unit], capture_output=True, text=True, timeout=support.WAIT_S)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_what_the_programs_link() -> None:
    """By the names of Debian's packages."""
    dpkg, text = program("dpkg"), (DEPLOY / "docker" / "Dockerfile").read_text()
    packages = set(re.findall(r"\blib[a-z0-9+.-]+\d\b", text))
    linked = said_by("objdump", "-p", support.BUILD / "penstockd", support.BUILD / "penstock")
    libraries = set(re.findall(r"NEEDED +(\S+)", linked)) - {"libpenstock.so.0"}
    owners = dict(reversed(line.split(": ")) for line in said_by(dpkg, "-S", *(f"*/{library}" for library in libraries)).splitlines())
    for library in libraries:
        mine = {owner.split(":")[0] for path, owner in owners.items() if path.endswith(f"/{library}")}
        assert mine & (packages | {"libc6"}), (library, mine)
