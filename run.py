"""Set up the project and run its tasks: ``python3 run.py demo|test|quick|lowest|docs|...``.

Needs only Python 3.11 or newer. The first run creates ``.venv`` and installs the project with the
versions in ``constraints.txt``; later runs start at once.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "build", "dist")
SITE = "docs/_build/html"
GENERATED = (
    "docs/_build",
    "docs/gallery",
    "docs/api/generated",
    "docs/api/backreferences",
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PARALLEL = ("-n", "auto", "--dist", "worksteal")  # one test process per processor
UNIT_TESTS = (
    "tests/core",
    "tests/tables",
    "tests/test_layers.py",
    "tests/test_metrics.py",
)
OLD_TESTS = (  # what depends on other libraries; long brute-force laws don't
    "tests/core/test_bad_input.py",
    "tests/core/test_criteria.py",
    "tests/core/test_frontier.py",
    "tests/core/test_group_scores.py",
    "tests/core/test_lottery.py",
    "tests/core/test_search.py",
    "tests/core/test_weights.py",
    "tests/tables",
    "tests/estimators/test_fairbayes.py",
)
FUZZ_TESTS = (
    "tests/fuzz",
    "tests/serve/server/test_fuzz_requests.py",
    "tests/serve/server/test_openapi.py",
    "tests/io/test_load.py::test_a_forged_manifest_is_read_or_refused_and_nothing_else",
    "tests/io/test_objects.py::test_an_altered_file_is_read_or_refused_and_nothing_else",
)
FUZZ_EXAMPLES = 150  # of each harness in a round
GUIDED = ("folder", "table", "request")  # targets of scripts/fuzz.py, which needs atheris
GUIDED_SECONDS = 60  # of each of them in a round
ALLOW_APT = "FAIRDIAL_APT"  # "allow": tests may install these packages of Debian's
SYSTEM = (  # name, tests that need it, program or path of one, package
    ("chromium", "the browser tests", "chromium", "chromium"),
    ("PostgreSQL", "the tests of its log", "/usr/lib/postgresql/*/bin/postgres", "postgresql"),
    ("nginx", "the tests behind a proxy", "nginx", "nginx-light"),
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the project, and what is installed in it."""

    folder: str
    install: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Return the absolute path of the environment."""
        return ROOT / self.folder

    @property
    def python(self) -> str:
        """Return the path of its interpreter, relative to the project."""
        return str(Path(self.folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    @property
    def stamp(self) -> Path:
        """Return the file that marks a finished install; it is written last."""
        return self.path / "installed.sha256"

    def key(self) -> list[str]:
        """Return what the install depends on: interpreter and path, then requirements."""
        digest = hashlib.sha256(repr(self.install).encode())
        for name in self.inputs:
            digest.update((ROOT / name).read_bytes())
        return [f"{sys.version} in {self.path}".replace("\n", " "), digest.hexdigest()]

    def stamped(self) -> list[str]:
        """Return the key of the finished install, or an empty list."""
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


def lowest_versions() -> Environment:
    """Return an environment with the oldest release of every direct dependency we declare."""
    with (ROOT / "pyproject.toml").open("rb") as handle:
        project = tomllib.load(handle)["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["save"], *extras["plot"], *extras["large"]]
    oldest = sorted({re.sub(r"\s*>=\s*", "==", line.split("#")[0].strip()) for line in declared})
    return Environment(
        ".venv-lowest",
        ("-e", ".", *oldest, "pytest", "hypothesis"),
        ("pyproject.toml",),
    )


def fail(message: str, code: int = 1) -> None:
    """Print one line and exit."""
    print(f"run.py: {message}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def surroundings() -> dict[str, str]:
    """Return the environment variables without those that would leak into the environment."""
    outside = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER"}
    return {name: value for name, value in os.environ.items() if name not in outside}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time install."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def quietly(what: str, command: list[str]) -> None:
    """Run a command and show its output only if it fails."""
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
        fail(f"{what} failed (exit {done.returncode}); see its output above.")


def prepare(env: Environment) -> None:
    """Create the environment unless it is up to date."""
    key = env.key()
    if env.stamped() == key:
        return
    with locked(ROOT / f"{env.folder}.lock"):
        found = env.stamped()
        if found == key:  # another process has created it meanwhile
            return
        print(f"Setting up {env.folder} (once; about two minutes) ...", flush=True)
        start = time.perf_counter()
        env.stamp.unlink(missing_ok=True)
        if found[:1] != key[:1]:  # missing, unfinished, moved, or for another Python
            quietly(
                "creating the virtual environment (on Debian: apt install python3-venv)",
                [sys.executable, "-m", "venv", "--clear", env.folder],
            )
        pip = [env.python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        quietly("pip install", [*pip, "install", "--quiet", *env.install])
        env.stamp.write_text("\n".join(key))
        print(f"Set up in {time.perf_counter() - start:.0f} s.", flush=True)


def step(name: str, *command: str, variables: dict[str, str] | None = None) -> None:
    """Run one step of a task and print how long it took; stop if it fails."""
    print(f"--- {name}", flush=True)
    start = time.perf_counter()
    code = subprocess.run(command, cwd=ROOT, env=surroundings() | (variables or {})).returncode
    took = time.perf_counter() - start
    if code != 0:
        fail(f"{name} FAILED (exit {code}) after {took:.1f} s.", code if code > 0 else 1)
    print(f"--- {name}: ok, {took:.1f} s", flush=True)


def find_programs() -> None:
    """Say how to get the programs that some tests need; install them only where allowed."""
    for what, tests, found, package in SYSTEM:
        if shutil.which(found) or any(Path("/").glob(found.lstrip("/"))):
            continue
        command = f"apt-get install --yes --no-install-recommends {package}"
        if os.environ.get(ALLOW_APT) != "allow":
            print(
                f"{what} isn't installed: {tests} are skipped. Install it ({command}), or "
                f"set {ALLOW_APT}=allow to let this task do it.",
                flush=True,
            )
            continue
        print(f"Installing {what} for {tests}: {command} ...", flush=True)
        quiet = surroundings() | {"DEBIAN_FRONTEND": "noninteractive"}
        for words in ("apt-get --quiet update", command):
            done = subprocess.run(words.split(), env=quiet, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{words} failed: {done.stderr.strip()[-300:]}", flush=True)
                break


def demo(rest: list[str]) -> None:
    """Train on embedded data and move the dial."""
    prepare(MAIN)
    step("demo", MAIN.python, "-m", "fairdial", "demo", *rest)


def test(rest: list[str]) -> None:
    """Run lint, types and every test."""
    lint([])
    find_programs()
    step("pytest", MAIN.python, "-m", "pytest", *PARALLEL, *rest, variables=ONE_THREAD)


def quick(rest: list[str]) -> None:
    """Run the unit tests of the core and the tables, in under a minute."""
    prepare(MAIN)
    chosen = rest or list(UNIT_TESTS)
    step("pytest", MAIN.python, "-m", "pytest", "-q", *PARALLEL, *chosen, variables=ONE_THREAD)


def lowest(rest: list[str]) -> None:
    """Run the core tests with the oldest versions that pyproject.toml allows."""
    env = lowest_versions()
    prepare(env)
    chosen = rest or list(OLD_TESTS)
    plain = ("-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")
    step("pytest", env.python, "-m", "pytest", *plain, *chosen, variables=ONE_THREAD)


def fuzz(rest: list[str]) -> None:
    """Draw hostile folders, tables and requests for --seconds (600), and stop at a failure."""
    parser = argparse.ArgumentParser(prog="run.py fuzz", description=fuzz.__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="of round 1")
    given = parser.parse_args(rest)
    prepare(MAIN)
    end, round_number = time.monotonic() + given.seconds, 0
    pytest = (MAIN.python, "-m", "pytest", "-q", *PARALLEL, *FUZZ_TESTS)
    found = subprocess.run((MAIN.python, "-c", "import atheris"), capture_output=True, check=False)
    targets = () if found.returncode else GUIDED
    if not targets:
        print("atheris isn't installed, so no fuzzing is guided by coverage.")
    while round_number == 0 or time.monotonic() < end:
        seed = f"--hypothesis-seed={given.seed + round_number}"
        round_number += 1
        variables = ONE_THREAD | {"FAIRDIAL_FUZZ_EXAMPLES": str(FUZZ_EXAMPLES)}
        step(f"fuzz, round {round_number} ({seed})", *pytest, seed, variables=variables)
        for target in targets:
            seconds = min(GUIDED_SECONDS, int(end - time.monotonic()))
            if seconds > 0:
                guided = ("scripts/fuzz.py", target, "--seconds", str(seconds))
                step(f"fuzz {target}", MAIN.python, *guided, variables=ONE_THREAD)


def lint(_: list[str]) -> None:
    """Check style, formatting and types."""
    prepare(MAIN)
    python = MAIN.python
    step("ruff check", python, "-m", "ruff", "check", ".")
    step("ruff format", python, "-m", "ruff", "format", "--check", ".")
    step("mypy", python, "-m", "mypy")


def fmt(_: list[str]) -> None:
    """Format the code and apply safe fixes."""
    prepare(MAIN)
    step("ruff check --fix", MAIN.python, "-m", "ruff", "check", "--fix", "--exit-zero", ".")
    step("ruff format", MAIN.python, "-m", "ruff", "format", ".")


def docs(_: list[str]) -> None:
    """Build the documentation; its examples run, and warnings are errors."""
    prepare(MAIN)
    sphinx = (MAIN.python, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going")
    trees = ("--doctree-dir", "docs/_build/doctrees", "--fresh-env", "--quiet")
    step("documentation", *sphinx, *trees, "docs", SITE, variables=ONE_THREAD)
    print(f"Open {SITE}/index.html; it needs no network.")


def bench(rest: list[str]) -> None:
    """Run the benchmarks, and write docs/figures.md; --only NAME runs some of them."""
    prepare(MAIN)
    step("benchmarks", MAIN.python, "benchmarks/bench.py", *rest, variables=ONE_THREAD)


def peers(_: list[str]) -> None:
    """Create an environment with the libraries that the benchmarks compare with."""
    prepare(PEERS)
    print(f"Ready: {PEERS.python} has fairdial and the libraries it is compared with.")


def clean(_: list[str]) -> None:
    """Remove everything that these tasks created."""
    for folder in (MAIN.folder, PEERS.folder, ".venv-lowest", *CACHES, *GENERATED):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
        (ROOT / f"{folder}.lock").unlink(missing_ok=True)
    for top in ("src", "tests", "docs", "scripts", "benchmarks"):
        for cache in list((ROOT / top).rglob("__pycache__")):
            shutil.rmtree(cache, ignore_errors=True)


TASKS = {
    task.__name__: task
    for task in (demo, test, quick, lowest, fuzz, docs, bench, lint, fmt, peers, clean)
}
TAKE_ARGUMENTS = ("demo", "test", "quick", "lowest", "fuzz", "bench")


def main() -> None:
    """Read the task's name and run it."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="The project's tasks.",
        epilog="\n".join(f"  {name:8}{task.__doc__}" for name, task in TASKS.items())
        + "\n\nFurther arguments go to the demo, pytest or the benchmarks: run.py test -k layers",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", choices=TASKS)
    given, rest = parser.parse_known_args()
    if rest and given.task not in TAKE_ARGUMENTS:
        parser.error(f"{given.task} takes no further arguments, got {' '.join(rest)}")
    TASKS[given.task](rest)


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        fail("needs Python {}.{} or newer, this is {}.{}.".format(*OLDEST, *sys.version_info))
    main()
