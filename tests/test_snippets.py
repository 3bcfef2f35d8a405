"""The Python of the documents and the examples run, and links lead somewhere."""

from __future__ import annotations

import importlib
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from sklearn.utils.estimator_checks import check_estimator

from fairdial.errors import FairdialWarning, InvalidInputError

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    document
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md")
    for document in ROOT.glob(pattern)
    if "_build" not in document.parts
)
NAMES = [str(document.relative_to(ROOT)) for document in DOCUMENTS]
OTHERS = "peers.md"  # has tests of its own
EXAMPLES = sorted(ROOT.glob("docs/examples/*.py"))
WITH_CODE = [
    d for d in DOCUMENTS if "```python" in d.read_text(encoding="utf-8") and d.name != OTHERS
]


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda d: d.name)
def test_the_snippets_of_a_document_run_one_after_the_other(document: Path) -> None:
    mpl.use("Agg")
    text = document.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "snippet"}
    for found in re.finditer(r"```python\n(.*?)```", text, flags=re.DOTALL):
        line = text[: found.start(1)].count("\n")
        code = compile("\n" * line + found.group(1), str(document), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(code, names)


def test_the_table_for_those_who_decide_is_what_its_lines_print() -> None:
    text = (ROOT / "docs" / "tolerance.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(code, names)
    for _, women, men, gap, ratio, right in names["table"].itertuples(index=False):
        assert f"| {women:.1%} | {men:.1%} | {gap:.3f} | {ratio:.3f} | {right:.1%} |" in text


def test_the_methods_that_are_added_pass_scikit_learns_checks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    (tmp_path / "added.py").write_text(code, encoding="utf-8")  # a module, so that pickle finds it
    monkeypatch.syspath_prepend(tmp_path)
    added = importlib.import_module("added")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most of the checks' rows are one group
        for method in (added.Reweighed, added.ReweighedFamily):
            checks = check_estimator(method(random_state=0), on_fail=None, on_skip=None)
            assert [check for check in checks if check["status"] == "failed"] == []
            with pytest.raises(InvalidInputError, match="`save` must be called on one of the libr"):
                method().save(tmp_path / "model")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_an_example_runs(example: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes by relative names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    plt.close("all")


def test_the_pictures_of_how_gfb_works_are_drawn_by_their_script(tmp_path: Path) -> None:
    mpl.use("Agg")
    script = runpy.run_path(str(ROOT / "scripts" / "draw_gfb.py"))
    settings = script["main"].__globals__
    settings["ROWS"], settings["EPOCHS"] = 3_000, 3  # the real one takes longer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)  # of so short a training
        script["main"](tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    page = (ROOT / "docs" / "gfb.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r"\]\(img/(gfb[\w-]*\.png)\)", page))
    assert drawn <= {path.name for path in (ROOT / "docs" / "img").iterdir()}


def anchors(document: Path) -> set[str]:
    """The anchors that a document's headings make."""
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
