"""The exported names are a contract: a change here is a change for users."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import fairdial

EXPORTED = {
    "fairdial": [
        "EPO",
        "GFB",
        "YOTO",
        "AutoDial",
        "BiasedScoresWarning",
        "CannotCertifyError",
        "CheckpointError",
        "Criterion",
        "DistributedError",
        "DivergedError",
        "Encoder",
        "FairBayes",
        "FairBiNN",
        "FairdialError",
        "FairdialWarning",
        "Frontier",
        "InfeasibleToleranceWarning",
        "InterruptedWarning",
        "InvalidInputError",
        "MissingExtraError",
        "ModelFileError",
        "Network",
        "Point",
        "Points",
        "ScoreSummary",
        "SeenRowsWarning",
        "SmallGroupError",
        "TableEncoder",
        "TarteEncoder",
        "TrainingWarning",
        "UnknownGroupError",
        "calibrate_parquet",
        "criterion",
        "load",
        "make_group_scorer",
        "measure",
        "paper_settings",
        "proba_to_logits",
        "summarize_parquet",
        "sweep",
    ],
    "fairdial.datasets": [
        "Dataset",
        "GaussianLaw",
        "Pictures",
        "load_adult",
        "load_celeba",
        "load_compas",
        "load_utkface",
        "make_gaussian",
    ],
}


@pytest.mark.parametrize("module", EXPORTED)
def test_the_exported_names_are_exactly_these(module: str) -> None:
    found = importlib.import_module(module)
    assert list(found.__all__) == EXPORTED[module]
    assert all(hasattr(found, name) for name in found.__all__)


@pytest.mark.parametrize(
    "name", [n for n in EXPORTED["fairdial"] if not n.endswith(("Error", "Warning"))]
)
def test_every_exported_name_has_a_docstring_with_an_example(name: str) -> None:
    thing = getattr(fairdial, name)
    texts = [inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        texts += [inspect.getdoc(member) or "" for _, member in inspect.getmembers(thing)]
    assert any(">>>" in text for text in texts) or name in ("Criterion", "Point", "Points")
    assert texts[0]


def test_the_version_is_the_packages_own() -> None:
    from importlib.metadata import version

    assert fairdial.__version__ == version("fairdial")


def test_the_dial_needs_neither_torch_nor_matplotlib_nor_fastapi() -> None:
    code = (
        "import sys, fairdial\n"
        "fairdial.sweep([-1.0, 1.0, 2.0], [0, 0, 1], min_count=1).at(0.5)\n"
        "print(sorted({'torch', 'matplotlib', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- names that are imported when they are used ------------------------------------------------


def test_type_checkers_see_the_names_that_are_there() -> None:
    (block,) = (
        node
        for node in ast.parse(inspect.getsource(fairdial)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == {f"fairdial.{home}": names for home, names in fairdial._HOME.items()}
    assert sorted(sum(seen.values(), ())) == sorted(fairdial.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport fairdial\n"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}"
        " - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fairdial']"


def test_names_are_listed_found_once_and_otherwise_refused() -> None:
    assert set(fairdial.__all__) <= set(dir(fairdial))
    assert fairdial.FairBayes is fairdial.FairBayes
    assert fairdial.metrics.gap is importlib.import_module("fairdial.metrics").gap
    with pytest.raises(AttributeError, match="module 'fairdial' has no attribute 'FairBays'"):
        fairdial.FairBays  # noqa: B018
    with pytest.raises(ImportError, match="FairBays"):
        exec("from fairdial import FairBays")
