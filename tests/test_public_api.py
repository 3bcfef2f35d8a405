"""The public names: documented, typed, and imported on first use."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import fairdial


def test_type_checkers_see_the_names_that_are_there() -> None:
    tree = ast.parse(inspect.getsource(fairdial))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and "not" not in ast.unparse(node.test)
    )
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(fairdial.__all__)
    for name, module in seen.items():
        assert getattr(fairdial, name) is getattr(importlib.import_module(str(module)), name)


@pytest.mark.parametrize(
    "name", [n for n in fairdial.__all__ if not n.endswith(("Error", "Warning"))]
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


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_frontier_needs_neither_torch_nor_matplotlib_nor_fastapi() -> None:
    code = (
        "import sys, fairdial\n"
        "fairdial.sweep([-1.0, 1.0, 2.0], [0, 0, 1], min_count=1).at(0.5)\n"
        "print(sorted({'torch', 'matplotlib', 'fastapi'} & set(sys.modules)))"
    )
    assert run(code) == "[]"


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport fairdial, fairdial.registry\n"
        "fairdial.registry.names()\n"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}"
        " - sys.stdlib_module_names))"
    )
    assert run(code) == "['fairdial']"


def test_names_are_listed_found_once_and_otherwise_refused() -> None:
    names: dict[str, object] = {}
    exec("from fairdial import *", names)
    assert set(fairdial.__all__) <= set(dir(fairdial)) & set(names)
    assert fairdial.FairBayes is fairdial.FairBayes
    assert fairdial.metrics.gap is importlib.import_module("fairdial.metrics").gap
    with pytest.raises(AttributeError, match="FairBays"):
        fairdial.FairBays  # noqa: B018
    with pytest.raises(ImportError, match="FairBays"):
        exec("from fairdial import FairBays")
