"""The Python in the documents and the examples runs, and links lead somewhere."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from sklearn.utils.estimator_checks import check_estimator

from fairdial import registry
from fairdial.datasets.registry import DATASETS
from fairdial.errors import FairdialWarning

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    document
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md")
    for document in ROOT.glob(pattern)
    if "_build" not in document.parts
)
NAMES = [str(document.relative_to(ROOT)) for document in DOCUMENTS]
OTHERS = ("peers.md", "mlflow.md")  # have tests of their own
PRINTED = ("costs.md", "criteria.md", "dial.md", "tolerance.md")  # snippets print their tables
EXAMPLES = sorted(ROOT.glob("docs/examples/*.py"))


def snippets(document: Path) -> list[str]:
    """Return the Python blocks of a document, padded so that line numbers match."""
    text = document.read_text(encoding="utf-8")
    found = re.finditer(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return ["\n" * text[: match.start(1)].count("\n") + match.group(1) for match in found]


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """Forget what a document registers."""
    before = [(records, dict(records)) for records in (registry._METHODS, DATASETS)]
    yield
    for records, known in before:
        records.clear()
        records.update(known)


WITH_CODE = [d for d in DOCUMENTS if d.name not in OTHERS and snippets(d)]


def run(document: Path) -> dict[str, Any]:
    """Run the snippets of a document one after the other and return their names."""
    mpl.use("Agg")
    module = sys.modules["snippet"] = ModuleType("snippet")  # where skops finds its classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for code in snippets(document):
            exec(compile(code, str(document), "exec"), vars(module))
    del sys.modules["snippet"]
    return vars(module)


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda d: d.name)
def test_snippets_run(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(document)
    plt.close("all")
    text = document.read_text(encoding="utf-8")
    printed = capsys.readouterr().out.splitlines()
    rows = [line for line in printed if line.startswith("| ")]
    if document.name in PRINTED:
        assert rows
        assert not [row for row in rows if row not in text]


def test_added_methods_pass_the_checks_of_scikit_learn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = "\n".join(snippets(ROOT / "docs" / "adding.md"))
    (tmp_path / "added.py").write_text(code, encoding="utf-8")  # a module, so that pickle finds it
    monkeypatch.syspath_prepend(tmp_path)
    added = importlib.import_module("added")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most of the checks use one group
        for method in (added.Reweighed, added.Repaired):
            checks = check_estimator(
                method(random_state=0),
                on_fail=None,
                on_skip=None,
                expected_failed_checks=dict.fromkeys(  # copies of a row may be separated
                    [f"check_sample_weight_equivalence_on_{k}_data" for k in ("dense", "sparse")],
                    "rows are held out one by one",
                ),
            )
            assert [check for check in checks if check["status"] == "failed"] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_an_example_runs(example: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    plt.close("all")


@pytest.mark.parametrize(
    ("page", "faster"),
    [("gfb", {"ROWS": 3_000, "EPOCHS": 3}), ("criteria", {"ROWS": 2_000})],
)
def test_the_script_draws_the_figures_of_a_page(
    page: str, faster: dict[str, int], tmp_path: Path
) -> None:
    mpl.use("Agg")
    script = runpy.run_path(str(ROOT / "scripts" / f"draw_{page}.py"))
    script["main"].__globals__.update(faster)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)  # too few rows or epochs
        script["main"](tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(rf"\]\(img/({page}[\w-]*\.png)\)", text))
    assert drawn <= {path.name for path in (ROOT / "docs" / "img").iterdir()}


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_links_inside_the_project_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (document.parent / path).resolve() if path else document
        assert place.exists(), f"{target} in {document.name}"
        if anchor:
            assert anchor in anchors(place), f"{target} in {document.name}"
