"""Containers and manifests fit the server that they start: options, ports, paths, volumes.

No Docker daemon or cluster is needed: files are parsed, and compared with the command and the
routes. What they start isn't started here.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from fairdial.cli.serve import serve
from fairdial.serve.audit import is_database

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parent.parent / "deploy"
PORT = "8000"


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def lines() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile: words and the rest, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text("utf-8"))
    found = (line.partition(" ") for line in text.splitlines() if line and line[0] != "#")
    return [(word, rest.strip()) for word, _, rest in found]


def options(arguments: list[str]) -> dict[str, Any]:
    """What the command reads; raises for an option that it doesn't have."""
    with click.Context(serve) as context:
        parser = serve.make_parser(context)
        values, rest, _ = parser.parse_args(list(arguments))
    assert rest == []
    return dict(values)


def manifest(kind: str) -> Any:
    (found,) = (one for one in read("kubernetes/fairdial.yaml") if one["kind"] == kind)
    return found


def paths() -> set[str]:
    source = Path(__file__).parent.parent / "src" / "fairdial" / "serve" / "app.py"
    return set(re.findall(r'@app\.get\("([^"{]+)"', source.read_text("utf-8")))


def check_server(arguments: list[str], mounts: dict[str, bool], port: str = PORT) -> None:
    """Options exist; the server listens to others, and writes where it may."""
    given = options(arguments)
    assert (given["host"], str(given["port"])) == ("0.0.0.0", port)
    written = [given["observed"]] if is_database(given["audit"]) else [given["audit"]]
    for path in written:
        assert any(path.startswith(f"{place}/") for place, frozen in mounts.items() if not frozen)
    if not is_database(given["audit"]):
        assert given["folder"] == "/model"


def test_the_image_starts_the_server_as_nobody_in_particular():
    found = lines()
    last = dict(found)  # of the second stage
    assert last["USER"] == "10001"
    assert last["EXPOSE"] == PORT
    entry, command = json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])
    assert entry == ["fairdial", "serve"]
    check_server(command, {last["VOLUME"]: False})
    (path,) = re.findall(rf"http://127\.0\.0\.1:{PORT}(/\w+)", last["HEALTHCHECK"])
    assert path in paths()
    compile(json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[2], "health", "exec")
    base = [rest.split()[0] for word, rest in found if word == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", name) for name in base)
    (install,) = (rest for word, rest in found if word == "RUN" and "pip install" in rest)
    project = (DEPLOY.parent / "pyproject.toml").read_text("utf-8")
    for extra in re.findall(r"\.\[(.*?)\]", install)[0].split(","):
        assert f"\n{extra} = [" in project
    assert any("--constraint" in word for word in shlex.split(install))


def test_the_image_is_built_from_what_the_package_needs_and_nothing_else():
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").split()
    assert kept[0] == "*"
    names = {line.removeprefix("!") for line in kept[1:]}
    assert all((DEPLOY.parent / name).exists() for name in names)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"src", "pyproject.toml", project["readme"], *project["license-files"]} <= names


def test_compose_starts_two_servers_with_one_dial():
    (found,) = read("compose.yaml")
    services, volumes = found["services"], found["volumes"]
    dials = {name: services[name] for name in ("dial", "other-dial")}
    places = set()
    for one in dials.values():
        mounts = [text.rsplit(":", 2) for text in one["volumes"]]
        rights = {m[1] if m[-1] == "ro" else m[-1]: m[-1] == "ro" for m in mounts}
        check_server(one["command"], rights)
        given = options(one["command"])
        assert rights[given["folder"]]
        assert "@database/" in given["audit"]
        places.add(given["audit"])
        assert one["read_only"]
        assert "/tmp" in one["tmpfs"]
        assert set(one["environment"]) == {"FAIRDIAL_TOKEN", "PGPASSWORD"}
        for port in one["ports"]:
            assert port.startswith("127.0.0.1:")
            assert port.endswith(f":{PORT}")
        for needed, how in one["depends_on"].items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in services[needed]
        own = {text.partition(":")[0] for text in one["volumes"]} & set(volumes)
        assert len(own) == 1
    assert len(places) == 1
    (address,) = places
    database = services["database"]["environment"]
    user, name = re.match(r"postgresql://(\w+)@database/(\w+)", address).groups()
    assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == (user, name)
    (scrape,) = read("prometheus.yaml")[0]["scrape_configs"]
    assert scrape["metrics_path"] in paths()
    targets = scrape["static_configs"][0]["targets"]
    assert set(targets) == {f"{name}:{PORT}" for name in dials}
    assert (DEPLOY / services["dial"]["build"]["context"]).resolve() == DEPLOY.parent


def test_the_deployment_probes_what_the_server_answers():
    spec = manifest("Deployment")["spec"]
    pod = spec["template"]["spec"]
    (one,) = pod["containers"]
    frozen = {m["mountPath"]: m.get("readOnly", False) for m in one["volumeMounts"]}
    check_server(one["args"], frozen)
    assert is_database(options(one["args"])["audit"])  # replicas must share the dial
    assert spec["replicas"] > 1
    (port,) = one["ports"]
    assert str(port["containerPort"]) == PORT
    probes = {kind: one[kind]["httpGet"] for kind in one if kind.endswith("Probe")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",  # a lost database is no reason to restart
        "readinessProbe": "/readyz",
    }
    for probe in probes.values():
        assert probe["port"] == port["name"]
        assert probe["path"] in paths()
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/path"] in paths()
    assert pod["securityContext"]["runAsNonRoot"]
    assert str(pod["securityContext"]["runAsUser"]) == dict(lines())["USER"]
    assert one["securityContext"]["readOnlyRootFilesystem"]
    assert not frozen["/tmp"]
    grace = 5 + 10  # the pause before SIGTERM, and what running requests have
    assert one["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert pod["terminationGracePeriodSeconds"] > grace
    mounted = {m["name"] for c in (one, *pod["initContainers"]) for m in c["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_service_and_budget_select_the_deployment():
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    spec = manifest("Deployment")["spec"]
    assert spec["selector"]["matchLabels"] == labels
    service = manifest("Service")["spec"]
    assert service["selector"] == labels
    (one,) = spec["template"]["spec"]["containers"]
    assert [port["targetPort"] for port in service["ports"]] == [one["ports"][0]["name"]]
    budget = manifest("PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["minAvailable"] < spec["replicas"]


def test_an_option_that_the_server_doesnt_have_is_found():
    with pytest.raises(click.NoSuchOption):
        options(["/model", "--no-such-option"])
