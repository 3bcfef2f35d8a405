"""What is shipped: the wheel's files, its metadata, and the pinned versions."""

from __future__ import annotations

import email
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import fairdial

ROOT = Path(__file__).resolve().parents[1]
USED = {"bench", "dist", "images", "large", "onnx", "plot", "postgres", "save", "serve", "torch"}
ENGINES = {"polars", "ray", "spark"}
BOOSTERS = {"catboost", "lightgbm", "xgboost"}
EXTRAS = USED | ENGINES | BOOSTERS | {"all", "docs", "mlflow", "peers", "tarte", "test"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", sorted({*BOOSTERS, *ENGINES, "postgres"}))
def test_the_tests_install_what_the_extras_do(name: str) -> None:
    extras = PROJECT["optional-dependencies"]
    tests = [*extras["test"], *extras["all"], *extras["large"]]
    installed = {line.split("#")[0].strip() for line in tests}
    assert {line.split("#")[0].strip() for line in extras[name]} <= installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_holds_every_file_of_the_package(wheel):
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix()
        for path in (package / "fairdial").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == files


@pytest.mark.parametrize(
    "name",
    [
        "fairdial/py.typed",
        "fairdial/datasets/data/README.md",
        "fairdial/datasets/data/SHA256SUMS",
        "fairdial/datasets/data/adult.csv.gz",
        "fairdial/datasets/data/compas.csv.gz",
        "fairdial/serve/static/app.js",
        "fairdial/serve/static/index.html",
        "fairdial/serve/static/style.css",
        "fairdial/serve/static/vendor/uplot/LICENSE.txt",
        "fairdial/serve/static/vendor/uplot/uPlot.iife.min.js",
    ],
)
def test_the_wheel_holds_what_no_import_would_miss(wheel, name):
    assert name in wheel.namelist()


def test_the_wheel_holds_the_license(wheel):
    licenses = [name for name in wheel.namelist() if name.endswith("LICENSE")]
    assert len(licenses) == 1
    assert wheel.read(licenses[0]) == (ROOT / "LICENSE").read_bytes()


def test_the_wheel_holds_nothing_but_the_package(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"fairdial", f"fairdial-{fairdial.__version__}.dist-info"}
    assert not [name for name in wheel.namelist() if "pycache" in name or "test" in name]


def test_the_metadata_offers_exactly_the_promised_extras(metadata):
    assert set(metadata.get_all("Provides-Extra")) == EXTRAS


def test_the_metadata_names_the_license_and_the_python(metadata):
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_version_is_the_same_everywhere(metadata):
    assert metadata["Version"] == fairdial.__version__


def test_all_is_every_extra_that_users_run():
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = everything.removeprefix("fairdial[").removesuffix("]").split(",")
    assert set(named) == USED


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_torch_is_pinned():
    assert constraints()["torch"] == "2.13.0"


def test_whatever_the_tests_install_is_pinned():
    extras = PROJECT["optional-dependencies"]
    direct = [*PROJECT["dependencies"], *extras["plot"], *extras["test"], *extras["docs"]]
    assert {name.split(">=")[0].split("[")[0] for name in direct} <= set(constraints())
