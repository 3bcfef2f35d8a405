"""Store the records of trials: a JSON file each while a study runs, one compressed file after that.

A trial is found again by the hash of its configuration and the version of the code that ran it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import lzma
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from threadpoolctl import threadpool_info

from fairdial._files import write_file
from fairdial.datasets.registry import DATASETS
from fairdial.errors import InvalidInputError
from fairdial.registry import BUILT_IN, method_of, methods

FORMAT = 2
LONGEST = 60  # characters of a method's name in a file name
ABANDONED = 3600.0  # seconds after which a temporary file no longer has a writer
PACKAGES = ("fairdial", "numpy", "scipy", "scikit-learn", "pandas", "torch")
PACKAGE = Path(__file__).parents[1]
UNRELATED = ("bench/", "serve/", "cli/", "io/", "__main__.py", "plotting.py", "progress.py")
RELATED = tuple(
    f"bench/{name}.py"
    for name in ("trial", "model", "sources", "estimators", "decisions", "peers", "peer_worker")
)
LIBRARIES = {"fairdial", "sklearn", *sys.stdlib_module_names}  # their code isn't the user's


class Config(TypedDict):
    """What a trial runs, as plain data."""

    kind: str  # "study" or "cost"
    dataset: str
    rows: int | None
    criterion: str
    method: dict[str, Any]  # the fields of `plan.Method`
    settings: int
    seed: int
    init: NotRequired[int]
    train_rows: NotRequired[int]
    evaluate: NotRequired[str]
    tolerances: NotRequired[list[float]]
    confidence: NotRequired[float]
    epochs: NotRequired[int]
    split: NotRequired[str]  # if it isn't the paper's
    curve: NotRequired[str]  # "tolerances": only the points at the tolerances
    size: NotRequired[int]  # of pictures, if it isn't 64
    objective: NotRequired[str | list[float]]  # a name, or costs of the two kinds of errors


class Record(TypedDict):
    """What a trial found, and what it was made with."""

    config: Config
    code: str
    environment: dict[str, str]
    warnings: list[str]
    command: NotRequired[str]
    result: NotRequired[dict[str, Any]]
    timing: NotRequired[dict[str, float]]
    error: NotRequired[str]
    traceback: NotRequired[str]


# ---- what a record was made with ---------------------------------------------------------------


@cache
def code_version(root: Path = PACKAGE) -> str:
    """Return a hash of the code that a trial's result can depend on.

    Comments, docstrings and layout don't change it: the hash is over the syntax trees.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in RELATED or not name.startswith(UNRELATED):
            digest.update(name.encode() + b"\0" + _syntax(path.read_text("utf-8")))
    return digest.hexdigest()[:16]


def trial_code(config: Config) -> str:
    """Return a hash of the code that a trial depends on, the user's own included.

    That is :func:`code_version`, unless the method or the data set is registered by a module
    outside the library.
    """
    user = sorted({_user_code(owner) for owner in _user_objects(config)})
    if not user:
        return code_version()
    return hashlib.sha256("\0".join([code_version(), *user]).encode()).hexdigest()[:16]


def _user_objects(config: Config) -> Iterator[Callable[..., Any]]:
    """Yield the classes and functions of a trial that aren't the library's."""
    used = [method_of(config["method"]["estimator"])]
    if config["method"]["estimator"] == "AutoDial":
        used += [method for method in methods() if method.candidate is not None]
    found: list[Callable[..., Any] | None] = []
    for method in used:
        if method is not None and method not in BUILT_IN:
            found += [method.load, method.build, *method.types, *method.load().__mro__]
    if config["dataset"] in DATASETS:
        found.append(DATASETS[config["dataset"]].load)
    for owner in found:
        while isinstance(owner, partial):
            owner = owner.func
        if owner is not None and owner.__module__.partition(".")[0] not in LIBRARIES:
            yield owner


@cache
def _user_code(owner: Callable[..., Any]) -> str:
    """Return a hash of the module of a class or function, or of the package around it."""
    name = owner.__module__
    module = sys.modules.get(name)
    file = Path(getattr(module, "__file__", None) or "")
    if file.suffix != ".py":  # defined in a notebook, say
        try:
            texts = [textwrap.dedent(inspect.getsource(owner))]
        except (OSError, TypeError):
            texts = [getattr(owner, "__qualname__", name)]
    elif "." in name or hasattr(module, "__path__"):
        texts = [path.read_text("utf-8") for path in sorted(file.parent.rglob("*.py"))]
    else:
        texts = [file.read_text("utf-8")]
    return hashlib.sha256(b"\0".join([name.encode(), *map(_syntax, texts)])).hexdigest()


def _syntax(text: str) -> bytes:
    """Return the syntax tree of code without docstrings; the text itself if it isn't a module."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text.encode()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _drop_docstring(node)
    return ast.dump(tree).encode()


def _drop_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        del node.body[0]


@cache
def environment() -> dict[str, str]:
    """Return the versions of Python, the packages and the code, and the kind of machine.

    ``kernels`` names the processors that NumPy's and SciPy's linear algebra is compiled for: other
    kernels add in another order, and the last bits of scores differ.
    """
    found = {"python": platform.python_version(), "machine": platform.machine()}
    kernels = {library.get("architecture") for library in threadpool_info()} - {None}
    found["kernels"] = " ".join(sorted(kernels)) or "unknown"
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found | git_state(PACKAGE)


def git_state(folder: Path) -> dict[str, str]:
    """Return the commit of the code in a folder, and whether the code differs from it."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not _git(folder, "ls-files", "."):  # not a checkout of this code
        return {"commit": "unknown", "dirty": "unknown"}
    changed = _git(folder, "status", "--porcelain", "--", ".")
    return {"commit": commit, "dirty": "no" if changed == "" else "yes"}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def command_line() -> str:
    """Return the command of this process, without the user's folders.

    The value of ``--data`` is replaced, and absolute paths are cut to their last part.
    """
    program, *arguments = sys.argv or [""]
    path = Path(program)
    shown = [path.parent.name if path.name == "__main__.py" else path.name]
    option = ""
    for argument in arguments:
        start, value = "", argument
        if argument.startswith("--") and "=" in argument:
            option, value = argument.split("=", 1)
            start = f"{option}="
        if option == "--data":
            value = "DATA"
        elif Path(value).is_absolute():
            value = Path(value).name
        shown.append(start + value)
        option = argument
    return shlex.join(shown)


def config_key(config: Config) -> str:
    """Return a hash of a configuration."""
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- one compressed file -----------------------------------------------------------------------


def pack(records: Iterable[Record], path: Path) -> None:
    """Write records to one compressed file, a JSON object with record and hash per line."""
    ordered = sorted(records, key=lambda record: (_name(record["config"]), record["code"]))
    bodies = [_compact(record) for record in ordered]
    lines = [f'{{"record":{body},"sha256":"{_hash(body)}"}}\n' for body in bodies]
    replace_file(path, lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


def read_packed(path: Path) -> list[Record]:
    """Return the records of a file that :func:`pack` wrote; none if there is no such file.

    Damaged lines are left out, so that their trials run again.
    """
    if not path.is_file():
        return []
    try:
        with lzma.open(path, "rb") as file:
            lines = file.read().splitlines()
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise InvalidInputError(
            "records",
            "be a file that can be read",
            given=f"{path} ({error})",
            hint="Restore the file, or delete it to run its trials again.",
        ) from error
    return [record for record in map(_unpack, lines) if record is not None]


def _unpack(line: bytes) -> Record | None:
    """Return the record of a line, or None if the line is damaged."""
    try:
        found = json.loads(line)
        if "sha256" not in found:  # up to version 0.1, a line was the record alone
            return cast(Record, found) if {"config", "code"} <= found.keys() else None
        record = cast(Record, found["record"])
        return record if found["sha256"] == _hash(_compact(record)) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _compact(record: Record) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, and the folders above it, so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


def _name(config: Config) -> str:
    """Return a readable name that is unique to a configuration."""
    text = f"{config['kind']} {config['dataset']} {config['method']['name'][:LONGEST]}"
    plain = re.sub(r"[^a-z0-9]+", "-", f"{text} {config['seed']}".lower()).strip("-")
    return f"{plain}-{config_key(config)}"


# ---- the records of a study --------------------------------------------------------------------


class Store:
    """The records of a study: a folder of JSON files, and the compressed file beside it.

    Parameters
    ----------
    folder : path
        Created when the first record is written. Packed records are in the file of the same name
        with the suffix ``.jsonl.xz``.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.packed = self.folder.with_name(f"{self.folder.name}.jsonl.xz")
        self._index: dict[str, list[Record]] | None = None  # packed records by configuration

    def path(self, config: Config, code: str | None = None) -> Path:
        """Return the file of a trial."""
        return self.folder / f"{_name(config)}-{code or trial_code(config)}.json"

    def write(self, record: Record) -> None:
        """Store a record.

        A record with numbers that aren't finite is stored as a failure. A failure never replaces
        a finished record.
        """
        try:
            body = json.dumps(record, sort_keys=True, allow_nan=False)
        except ValueError as error:
            kept = {k: v for k, v in record.items() if k not in ("result", "timing")}
            self.write(cast(Record, kept | {"error": f"a number is not finite: {error}"}))
            return
        if "error" in record and self.find(record["config"]) is not None:
            return
        head = {"format": FORMAT, "code": record["code"], "sha256": _hash(body)}
        text = f"{json.dumps(head)}\n{body}\n"
        replace_file(self.path(record["config"], record["code"]), text.encode())

    def read(self, path: Path) -> Record | None:
        """Return a record, or None if the file is damaged or of an unknown format."""
        try:
            head_line, body = path.read_text("utf-8").rstrip("\n").split("\n")
            head = json.loads(head_line)
            if head["format"] not in (1, FORMAT) or head["sha256"] != _hash(body):
                return None
            record = cast(Record, {"code": head["code"]} | json.loads(body))
            return record if head["format"] == FORMAT else _from_format_1(record)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def find(self, config: Config) -> Record | None:
        """Return the finished record of a trial by this code."""
        record = self._by_this_code(config)
        return record if record is not None and "error" not in record else None

    def failure(self, config: Config) -> str | None:
        """Return the error of a trial that failed with this code."""
        record = self._by_this_code(config)
        return None if record is None else record.get("error")

    def records(self, configs: Iterable[Config]) -> list[Record]:
        """Return the record of each trial: by this code, else the newest by other code.

        A failure by other code counts only if no other code finished the trial.
        """
        found = []
        for config in configs:
            newest_first = list(self._by_any_code(config))
            whole = [record for record in newest_first if "error" not in record]
            record = self._by_this_code(config) or next(iter(whole or newest_first), None)
            if record is not None:
                found.append(record)
        return found

    def pack(self) -> int:
        """Move all records into one compressed file; return how many it holds."""
        files = {path: self.read(path) for path in sorted(self.folder.glob("*.json"))}
        here = [record for record in files.values() if record is not None]
        packed = {(config_key(r["config"]), r["code"]): r for r in read_packed(self.packed) + here}
        pack(packed.values(), self.packed)
        self._index = None
        for path, record in files.items():
            if record is not None and self.read(path) == record:  # nobody replaced it meanwhile
                path.unlink(missing_ok=True)
        return len(packed)

    def remove_leftovers(self) -> None:
        """Remove temporary files of writers that were killed."""
        for path in self.folder.glob("*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()

    def _by_this_code(self, config: Config) -> Record | None:
        code = trial_code(config)
        record = self.read(self.path(config, code))
        if record is not None:
            return record
        return next((r for r in self._packed(config) if r["code"] == code), None)

    def _by_any_code(self, config: Config) -> Iterator[Record]:
        """Yield the records of a trial, newest first; packed records are the oldest."""
        paths = sorted(self.folder.glob(f"{_name(config)}-*.json"), key=os.path.getmtime)
        for path in reversed(paths):
            record = self.read(path)
            if record is not None:
                yield record
        yield from self._packed(config)

    def _packed(self, config: Config) -> list[Record]:
        if self._index is None:
            index: dict[str, list[Record]] = {}
            for record in read_packed(self.packed):
                index.setdefault(config_key(record["config"]), []).append(record)
            self._index = index
        return self._index.get(config_key(config), [])


def _from_format_1(record: Record) -> Record:
    """Return a record whose operating points are columns; they used to be a list of objects."""
    points = record.get("result", {}).get("states")
    if points:
        record["result"]["states"] = {
            "state": [point["state"] for point in points],
            "test": _columns([point["test"] for point in points]),
        }
    return record


def _columns(counts: list[list[list[int]]]) -> list[list[list[int]]]:
    """Return counts (n, L, K) as (L, K, n)."""
    labels = range(len(counts[0]))
    groups = range(len(counts[0][0]))
    return [[[point[y][a] for point in counts] for a in groups] for y in labels]


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
