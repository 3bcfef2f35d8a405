"""The exported names are a contract: a change here is a change for users."""

from __future__ import annotations

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
        "BiasedScoresWarning",
        "CannotCertifyError",
        "CheckpointError",
        "Criterion",
        "DistributedError",
        "DivergedError",
        "FairBayes",
        "FairBiNN",
        "FairdialError",
        "FairdialWarning",
        "Frontier",
        "InfeasibleToleranceWarning",
        "InvalidInputError",
        "MissingExtraError",
        "ModelFileError",
        "Network",
        "Point",
        "Points",
        "ScoreSummary",
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
