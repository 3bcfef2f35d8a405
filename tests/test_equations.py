"""docs/equations.md and the labels cited in the source say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fairdial
from fairdial import metrics
from fairdial.estimators.gfb import GFB
from fairdial.nn.network import Network
from fairdial.paper.presets import paper_settings

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
LABEL = re.compile(r"\b(?:eq|thm|alg|lem|cor|assum):[A-Za-z](?:[\w-]*\w)?(?:\.\d+)?")
CODE = re.compile(r"`(fairdial(?:\.\w+)+)`")
SETTING = re.compile(r"`(\w+)=([^`]+)`")


def cited(path: Path) -> set[str]:
    return set(LABEL.findall(path.read_text("utf-8")))


def page() -> list[list[str]]:
    """The cells of every line of a table of the page."""
    lines = (ROOT / "docs" / "equations.md").read_text("utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]


def table() -> dict[str, list[str]]:
    """Label to the dotted names of its row: ``label | symbol | what | where``."""
    rows = {}
    for cells in page():
        if len(cells) == 4 and LABEL.search(cells[0]):
            assert LABEL.fullmatch(cells[0].strip("`")), f"not a label: {cells[0]}"
            assert cells[0].strip("`") not in rows, f"{cells[0]} has two rows"
            rows[cells[0].strip("`")] = CODE.findall(cells[3])
    return rows


TABLE = table()
PATHS = sorted(SOURCE.rglob("*.py"))


Definition = ast.FunctionDef | ast.ClassDef | ast.Assign


def defined(body: list[ast.stmt], name: str) -> Definition | None:
    """What defines a name in the body of a module or class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    return None


def own_text(name: str) -> str:
    """The lines that define a function, method, class (without its methods) or constant."""
    parts = name.split(".")
    split = next(n for n in range(len(parts), 0, -1) if file_of(parts[:n]).is_file())
    assert split < len(parts), f"{name} is a module: name the function in it."
    text = file_of(parts[:split]).read_text("utf-8")
    body = ast.parse(text).body
    for part in parts[split:]:
        found = defined(body, part)
        assert found is not None, f"{name} is not defined: there is no {part}."
        body = found.body if isinstance(found, ast.ClassDef) else []
    lines: list[str] = text.splitlines()
    for inner in body:
        if isinstance(inner, ast.FunctionDef):
            lines[inner.lineno - 1 : inner.end_lineno] = [""] * (
                inner.end_lineno - inner.lineno + 1
            )
    return "\n".join(lines[found.lineno - 1 : found.end_lineno])


def file_of(parts: list[str]) -> Path:
    """The source file of a module of this name."""
    return SOURCE.joinpath(*parts).with_suffix(".py")


LABELLED = 49  # equations, theorems, lemmas, corollaries, assumptions and algorithms of the paper


def test_the_table_has_a_row_for_everything_that_the_paper_labels():
    assert len(TABLE) == LABELLED


def test_labels_of_the_appendix_repeat_labels_of_the_table():
    text = (ROOT / "docs" / "equations.md").read_text("utf-8")
    pairs = re.findall(r"`ap:(\w+)` \(`(eq:\w+)`\)", text)
    assert len(pairs) == 4
    for name, label in pairs:
        assert label == f"eq:{name}"
        assert label in TABLE


def test_settings_that_differ_from_the_papers_text_are_named():
    text = (ROOT / "docs" / "equations.md").read_text("utf-8")
    for method, argument in (("fairbinn", "preset"), ("yoto", "selection")):
        value = paper_settings(method, "adult", source="release")[argument]
        assert f'`{argument}="{value}"`' in text


@pytest.mark.parametrize("path", PATHS, ids=[str(path.relative_to(SOURCE)) for path in PATHS])
def test_every_cited_label_is_in_the_table(path):
    missing = cited(path) - set(TABLE)
    assert not missing, f"{path.name} cites {sorted(missing)}: add rows to docs/equations.md."


@pytest.mark.parametrize("label", TABLE)
def test_every_label_of_the_table_is_cited_by_what_the_table_names(label):
    assert TABLE[label], f"{label} names no `fairdial...` in its `where` column."
    for name in TABLE[label]:
        assert label in LABEL.findall(own_text(name)), f"{name} itself doesn't cite {label}."


PUBLIC = [getattr(fairdial, name) for name in fairdial.__all__]
PUBLIC += [metrics.group_table, metrics.gap, metrics.pareto, metrics.hypervolume]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__name__)
def test_public_docstrings_cite_no_labels(thing):
    assert not LABEL.findall(thing.__doc__ or "")


def test_modules_and_unknown_names_are_refused():
    with pytest.raises(AssertionError, match=r"nn\.masoba is a module"):
        own_text("fairdial.nn.masoba")
    with pytest.raises(AssertionError, match="there is no nothing"):
        own_text("fairdial.nn.masoba.Objective.nothing")


def test_the_lines_of_a_class_are_not_those_of_its_methods():
    assert "eq:bilevel_optim" in own_text("fairdial.estimators.gfb.GFB")
    assert "eq:h" not in LABEL.findall(own_text("fairdial.nn.steps.BilevelStep"))


DIFFERENCES = [cells for cells in page() if len(cells) == 3 and LABEL.search(cells[0])]


def settings(method: GFB, network: Network) -> dict[str, object]:
    return network.get_params(deep=False) | method.get_params(deep=False)


def test_the_differences_cite_labels_of_the_table():
    assert DIFFERENCES
    for cells in DIFFERENCES:
        assert set(LABEL.findall(cells[0])) <= set(TABLE)


@pytest.mark.parametrize("column", [1, 2], ids=["default", "paper"])
def test_the_settings_that_the_differences_name_are_those_of_the_code(column):
    paper = GFB(**paper_settings("gfb", "adult", source="release"))
    actual = settings(GFB(), Network()) if column == 1 else settings(paper, paper.network)
    listed = [found for cells in DIFFERENCES for found in SETTING.findall(cells[column])]
    assert len(listed) >= 8
    assert {n: ast.literal_eval(v) for n, v in listed} == {n: actual[n] for n, _ in listed}


def test_each_setting_that_differs_in_the_paper_is_listed():
    paper = GFB(**paper_settings("gfb", "adult", source="release")).get_params(deep=False)
    default = GFB().get_params(deep=False)
    changed = {name for name in default if default[name] != paper[name]} - {"network"}
    listed = {name for cells in DIFFERENCES for name, _ in SETTING.findall(cells[1])}
    assert changed <= listed
