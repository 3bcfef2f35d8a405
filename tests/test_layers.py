"""Imports point down only, and heavy libraries stay where they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

# Top to bottom; the parts of one layer don't see each other.
LAYERS = (
    {"__main__"},
    {"cli"},
    {"report"},
    {"bench", "mlflow", "serve"},
    {"io"},
    {"registry"},
    {"paper"},
    {"estimators"},
    {"nn"},
    {"forests"},
    {"large"},
    {"tables"},
    {"metrics", "datasets"},
    {"core"},
    {"_validation"},
    {"plotting", "_onnx", "_sql"},
    {"_arrays", "_files", "_special", "_version", "errors", "progress"},
)
DEPTH = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
TORCH_METHODS = {
    "fairdial.bench.trial",
    "fairdial.estimators.gfb",
    "fairdial.io.networks",
    *(f"fairdial.paper.{name}" for name in ("yoto", "epo", "fairbinn")),
}


UPWARD = {
    ("fairdial.estimators.base", "fairdial.io.save"),  # model.save(), for convenience
    *(
        (f"fairdial.estimators.{name}", "fairdial.registry")
        for name in ("auto", "candidates", "trials")
    ),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
INSIDE = [name for name in MODULES if name != "fairdial"]


def part_of(module: str) -> str:
    """The part of the package that a module belongs to, such as ``datasets``."""
    return module.split(".")[1]


def imports(tree: ast.AST, module: str, path: Path) -> Iterator[str]:
    """Every module that is imported, wherever the import stands; relative ones in full."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in MODULES else base


def imported_by(module: str) -> set[str]:
    path = MODULES[module]
    return set(imports(ast.parse(path.read_text("utf-8")), module, path))


def imported_at_once(module: str) -> set[str]:
    """What is imported together with the module: not in functions, not for type checkers only."""
    path = MODULES[module]
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if function or typing:
            node.body = []
    return set(imports(tree, module, path))


def uses(names: set[str], library: str) -> bool:
    return any(name == library or name.startswith(library + ".") for name in names)


@pytest.mark.parametrize("module", INSIDE)
def test_every_module_has_a_layer(module):
    assert part_of(module) in DEPTH, (
        f"{module} belongs to no layer: give {part_of(module)!r} its place in LAYERS, "
        "and in the picture of docs/architecture.md."
    )


@pytest.mark.parametrize("module", INSIDE)
def test_imports_point_down_only(module):
    here = part_of(module)
    for name in imported_by(module):
        if not uses({name}, "fairdial"):
            continue
        assert name != "fairdial", f"{module} must import from a module, not from the package."
        if (module, name) in UPWARD:
            continue
        there = part_of(name)
        below = there in DEPTH and here in DEPTH and DEPTH[there] > DEPTH[here]
        assert there == here or below, (
            f"{module} imports {name}, but {there} doesn't lie below {here} in LAYERS."
        )


@pytest.mark.parametrize("module", INSIDE)
def test_torch_stays_in_the_networks_and_their_methods(module):
    if part_of(module) != "nn" and module not in TORCH_METHODS:
        assert not uses(imported_by(module), "torch")


@pytest.mark.parametrize("module", INSIDE)
def test_fastapi_stays_in_the_server(module):
    if part_of(module) != "serve":
        assert not uses(imported_by(module), "fastapi")


@pytest.mark.parametrize("module", INSIDE)
def test_matplotlib_is_imported_when_something_is_drawn(module):
    if part_of(module) != "bench":
        assert not uses(imported_at_once(module), "matplotlib")


@pytest.mark.parametrize("module", INSIDE)
def test_nothing_is_ever_unpickled(module):
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    names = imported_by(module)
    assert not any(uses(names, name) for name in ("pickle", "cloudpickle", "dill", "shelve"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("joblib.load", "pd.read_pickle")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":  # tensors only
            assert "weights_only=True" in [ast.unparse(word) for word in node.keywords]
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert ast.unparse(node.value) == "False"


@pytest.mark.parametrize("module", INSIDE)
def test_skops_is_imported_when_objects_are_saved_or_loaded(module):
    if part_of(module) == "io":
        assert not uses(imported_at_once(module), "skops")
    else:
        assert not uses(imported_by(module), "skops")


CORE_AND_BELOW = [m for m in INSIDE if part_of(m) in DEPTH and DEPTH[part_of(m)] >= DEPTH["core"]]


@pytest.mark.parametrize("module", CORE_AND_BELOW)
def test_the_core_needs_neither_pandas_nor_scikit_learn_to_be_imported(module):
    for library in ("pandas", "sklearn"):
        assert not uses(imported_at_once(module), library)


@pytest.mark.parametrize("module", INSIDE)
def test_engines_are_imported_when_they_are_used(module):
    for library in ("polars", "duckdb", "dask", "pyspark", "ray"):
        assert not uses(imported_at_once(module), library)


@pytest.mark.parametrize("module", INSIDE)
def test_mlflow_is_imported_when_it_is_used(module):
    assert not uses(imported_at_once(module), "mlflow")


@pytest.mark.parametrize("module", INSIDE)
def test_pyarrow_is_imported_when_a_file_or_table_is_read(module):
    assert not uses(imported_at_once(module), "pyarrow")
    read = ("fairdial.datasets.acs", "fairdial.large.reader")
    if module not in read and not module.startswith("fairdial.large.engines."):
        assert not uses(imported_by(module), "pyarrow")


def test_import_fairdial_stays_light():
    heavy = "torch", "matplotlib", "fastapi", "tarte_ai", "fasttext", "skops", "pyarrow"
    program = f"import sys, fairdial; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_rows_are_decided_on_without_importing_scikit_learn():
    modules = "fairdial.cli.predict", "fairdial.cli.model_rows", "fairdial.cli.plain_dial"
    program = f"import sys, {', '.join(modules)}; print('sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
