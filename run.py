"""Set the project up and run its chores: ``python3 run.py demo|test|docs|lint|fmt|peers|clean``.

Needs nothing but Python 3.11 or newer. The first run makes ``.venv`` and installs the project in
it with the versions of ``constraints.txt``; later runs find its stamp and start at once.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "build", "dist")
PAGES = "docs/_build/html"
GENERATED = ("docs/_build", "docs/gallery", "docs/api/generated", "docs/api/backreferences")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the project, and what is installed in it."""

    folder: str
    install: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return ROOT / self.folder

    @property
    def python(self) -> str:
        """Its interpreter, relative to the project."""
        return str(Path(self.folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    @property
    def stamp(self) -> Path:
        """Written last, so that a half-finished install has none."""
        return self.path / "installed.sha256"

    def key(self) -> list[str]:
        """What the install depends on: the interpreter and its place; then what is asked for."""
        digest = hashlib.sha256(repr(self.install).encode())
        for name in self.inputs:
            digest.update((ROOT / name).read_bytes())
        return [f"{sys.version} in {self.path}".replace("\n", " "), digest.hexdigest()]

    def stamped(self) -> list[str]:
        """The key of the finished install, if there is one."""
        return self.stamp.read_text().splitlines() if self.stamp.is_file() else []


MAIN = Environment(
    ".venv",
    ("-e", ".[all,test,docs]", "-c", "constraints.txt"),
    ("pyproject.toml", "constraints.txt"),
)
PEERS = Environment(
    ".venv-peers",
    ("-e", ".[peers]", "-c", "benchmarks/constraints.txt"),
    ("pyproject.toml", "benchmarks/constraints.txt"),
)


def fail(message: str, code: int = 1) -> None:
    """Stop with one clear line."""
    print(f"run.py: {message}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def surroundings() -> dict[str, str]:
    """The environment variables, less those that would reach into the project's environment."""
    outside = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER"}
    return {name: value for name, value in os.environ.items() if name not in outside}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time install; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # not to be had on Windows
        yield
        return
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def quietly(what: str, command: list[str]) -> None:
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        fail(f"{what} failed (exit {done.returncode}); its output is above.")


def prepare(env: Environment) -> None:
    """Make the environment, unless it stands already."""
    key = env.key()
    if env.stamped() == key:
        return
    with locked(ROOT / f"{env.folder}.lock"):
        found = env.stamped()
        if found == key:  # another process made it meanwhile
            return
        print(f"Setting up {env.folder} (once; about two minutes) ...", flush=True)
        start = time.perf_counter()
        env.stamp.unlink(missing_ok=True)
        if found[:1] != key[:1]:  # nothing there, half-finished, moved, or of another Python
            quietly(
                "making the virtual environment (on Debian: apt install python3-venv)",
                [sys.executable, "-m", "venv", "--clear", env.folder],
            )
        pip = [env.python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        quietly("pip install", [*pip, "install", "--quiet", *env.install])
        env.stamp.write_text("\n".join(key))
        print(f"Set up in {time.perf_counter() - start:.0f} s.", flush=True)


def step(name: str, *command: str, variables: dict[str, str] | None = None) -> None:
    """Run one step of a chore and say how long it took; a failing step ends the chore."""
    print(f"--- {name}", flush=True)
    start = time.perf_counter()
    code = subprocess.run(command, cwd=ROOT, env=surroundings() | (variables or {})).returncode
    took = time.perf_counter() - start
    if code != 0:
        fail(f"{name} FAILED (exit {code}) after {took:.1f} s.", code if code > 0 else 1)
    print(f"--- {name}: ok, {took:.1f} s", flush=True)


def find_browser() -> None:
    """Debian's chromium, installed where that can be done; without it, tests say what they skip."""
    if shutil.which("chromium") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("Installing chromium for the tests of the page (once; a minute or so) ...", flush=True)
    quiet = surroundings() | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
        done = subprocess.run(
            ["apt-get", "--quiet", *words], env=quiet, capture_output=True, text=True
        )
        if done.returncode != 0:
            print(f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}", flush=True)
            return


def lint() -> None:
    """Lint, formatting and types."""
    python = MAIN.python
    step("ruff check", python, "-m", "ruff", "check", ".")
    step("ruff format", python, "-m", "ruff", "format", "--check", ".")
    step("mypy", python, "-m", "mypy")


def docs() -> None:
    """The documentation, with a warning as an error; examples run."""
    sphinx = (MAIN.python, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going")
    trees = ("--doctree-dir", "docs/_build/doctrees", "--fresh-env", "--quiet")
    step("documentation", *sphinx, *trees, "docs", PAGES, variables=ONE_THREAD)
    print(f"Open {PAGES}/index.html; it needs no network.")


def clean() -> None:
    """Remove what the chores made."""
    for folder in (MAIN.folder, PEERS.folder, *CACHES, *GENERATED):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
        (ROOT / f"{folder}.lock").unlink(missing_ok=True)
    for top in ("src", "tests", "examples", "scripts", "benchmarks"):
        for cache in list((ROOT / top).rglob("__pycache__")):
            shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    """Read the chore's name and do it."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="The project's chores.",
        epilog="Further arguments go to the demo, or to pytest: run.py test -k layers",
    )
    parser.add_argument("chore", choices=["demo", "test", "docs", "lint", "fmt", "peers", "clean"])
    given, rest = parser.parse_known_args()
    if rest and given.chore not in ("demo", "test"):
        parser.error(f"{given.chore} takes no further arguments, got {' '.join(rest)}")
    if given.chore == "clean":
        clean()
        return
    prepare(PEERS if given.chore == "peers" else MAIN)
    python = MAIN.python
    if given.chore == "demo":
        step("demo", python, "-m", "fairdial", "demo", *rest)
    elif given.chore == "test":
        lint()
        find_browser()
        together = ("-n", "auto", "--dist", "worksteal")  # as many processes as processors
        step("pytest", python, "-m", "pytest", *together, *rest, variables=ONE_THREAD)
    elif given.chore == "docs":
        docs()
    elif given.chore == "lint":
        lint()
    elif given.chore == "fmt":
        step("ruff check --fix", python, "-m", "ruff", "check", "--fix", "--exit-zero", ".")
        step("ruff format", python, "-m", "ruff", "format", ".")
    else:
        print(f"Ready: {PEERS.python} has fairdial and the libraries that it is compared with.")


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        fail("needs Python {}.{} or newer, this is {}.{}.".format(*OLDEST, *sys.version_info))
    main()
