"""docs/equations.md and the labels cited in the source say the same."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
LABEL = re.compile(r"\b(?:eq|thm|alg|lem|cor|assum):[A-Za-z](?:[\w-]*\w)?(?:\.\d+)?")
CODE = re.compile(r"`(fairdial(?:\.\w+)+)`")


def cited(path: Path) -> set[str]:
    return set(LABEL.findall(path.read_text("utf-8")))


def table() -> dict[str, list[str]]:
    """Label to the dotted names of its row: ``label | symbol | what | where``."""
    rows = {}
    for line in (ROOT / "docs" / "equations.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and LABEL.search(cells[0]):
            assert LABEL.fullmatch(cells[0].strip("`")), f"not a label: {cells[0]}"
            assert cells[0].strip("`") not in rows, f"{cells[0]} has two rows"
            rows[cells[0].strip("`")] = CODE.findall(cells[3])
    return rows


TABLE = table()
PATHS = sorted(SOURCE.rglob("*.py"))


def module_file(name: str) -> Path:
    """The source file of the module that a dotted name lies in."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        stem = SOURCE.joinpath(*parts[:end])
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return path
    raise AssertionError(f"{name} names no module")


LABELLED = 49  # equations, theorems, lemmas, corollaries, assumptions and algorithms of the paper


def test_the_table_has_a_row_for_everything_that_the_paper_labels():
    assert len(TABLE) == LABELLED


@pytest.mark.parametrize("path", PATHS, ids=[str(path.relative_to(SOURCE)) for path in PATHS])
def test_every_cited_label_is_in_the_table(path):
    missing = cited(path) - set(TABLE)
    assert not missing, f"{path.name} cites {sorted(missing)}: add rows to docs/equations.md."


@pytest.mark.parametrize("label", TABLE)
def test_every_label_of_the_table_is_cited_where_the_table_says(label):
    assert TABLE[label], f"{label} names no `fairdial...` in its `where` column."
    for name in TABLE[label]:
        assert label in cited(module_file(name)), f"{module_file(name).name} doesn't cite {label}."


@pytest.mark.parametrize("name", sorted({name for names in TABLE.values() for name in names}))
def test_every_name_of_the_table_resolves(name):
    module = ".".join(module_file(name).relative_to(SOURCE).with_suffix("").parts)
    try:
        importlib.import_module(module.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        pytest.skip("needs torch")
    assert pkgutil.resolve_name(name) is not None
