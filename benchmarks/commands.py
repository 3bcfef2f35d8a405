"""Time ``fairdial predict`` and ``train`` on a CSV beside bare scripts that do the same.

    python benchmarks/commands.py [--rows 1e6] [--repeats 2] [--quick]

The table has rows of Adult, drawn with replacement and slightly changed. A bare script reads it
with pandas, fits or loads scikit-learn's trees, and writes the decisions. Each command runs in a
fresh process, in turn; processor time and peak memory are those of the process.

In Python, on Adult itself: FairBayes is fitted on the training rows and decides on the test rows at
ten tolerances; the bare estimator is fitted on the same rows and predicts once. FairBayes holds a
fifth of the training rows out to calibrate on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from common import at_most, cpu_time, machine, show_goals, table
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fairdial import FairBayes
from fairdial.datasets import load_adult
from fairdial.estimators.learners import SMALL_TREES, boosting, text_columns

PACKAGES = ("fairdial", "numpy", "pandas", "scikit-learn")
TIMES, MEMORY, LINEAR, END_TO_END = 1.5, 1.5, 3.0, 1.05  # goals
TOLERANCES = np.linspace(0.01, 0.19, 10)
SPLITS = 5  # of Adult: how many trees there are depends on the rows
LABEL, GROUP = "income", "sex"
READ = f"""
import pickle, sys
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
rows = pd.read_csv(sys.argv[1])
X = rows.drop(columns=[{LABEL!r}])
X = X.astype({{name: "category" for name in X if not pd.api.types.is_numeric_dtype(X[name])}})
"""
BARE_TRAIN = f"""{READ}
trees = HistGradientBoostingClassifier(
    categorical_features="from_dtype", random_state=0, **{SMALL_TREES!r}
)
trees.fit(X, rows[{LABEL!r}])
pickle.dump(trees, open(sys.argv[2], "wb"))
"""
BARE_PREDICT = f"""{READ}
trees = pickle.load(open(sys.argv[2], "rb"))
pd.DataFrame({{"decision": trees.predict(X)}}).to_csv(sys.argv[3], index=False)
"""


def write_rows(path: Path, n: int) -> None:
    """Write rows of Adult, drawn with replacement, with one column of new numbers."""
    adult, rng = load_adult(), np.random.default_rng(0)
    drawn = rng.integers(0, len(adult.y), n)
    rows = adult.X.iloc[drawn].reset_index(drop=True)
    rows = rows.drop(columns=[name for name in (LABEL, GROUP) if name in rows])
    rows["hours"] = np.round(rng.normal(40, 10, n), 2)
    rows[GROUP] = np.asarray(adult.groups)[drawn]
    rows[LABEL] = np.where(np.asarray(adult.y)[drawn] == 1, ">50K", "<=50K")
    rows.to_csv(path, index=False)


def spend(command: Sequence[str]) -> tuple[float, float]:
    """Return the processor seconds and the peak megabytes of a command."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(errors.read().decode())
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands by name, in the order in which they must run first."""
    data, bare = str(folder / "rows.csv"), str(folder / "bare.pickle")
    python = [sys.executable, "-c"]
    ours = [sys.executable, "-m", "fairdial"]
    model = str(folder / "model")
    return {
        "train, bare": [*python, BARE_TRAIN, data, bare],
        "fairdial train": [
            *ours, "train", data, "--label", LABEL, "--positive", ">50K", "--sensitive", GROUP,
            "--out", model, "--overwrite", "-q",
        ],
        "predict, bare": [*python, BARE_PREDICT, data, bare, str(folder / "bare.csv")],
        "fairdial predict": [
            *ours, "predict", model, data, "--tolerance", "0.1", "--out", str(folder / "out.csv"),
            "--overwrite", "-q",
        ],
    }  # fmt: skip


def linear(n: int, repeats: int) -> float:
    """Return the time of ``predict`` by logistic regression against the bare estimator's."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 10)), columns=[f"x{i}" for i in range(10)])
    groups = pd.Series(rng.choice(["a", "b"], n))
    y = (X["x0"] + X["x1"] * (groups == "a") + rng.normal(size=n) > 0).astype(int)
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = slice(0, 20_000)
        model = FairBayes(estimator, random_state=0)
        model.fit(X[part], y[part], sensitive_features=groups[part])
        estimator.fit(X[part], y[part])
        bare = cpu_time(lambda: estimator.predict(X), repeats).seconds
        ours = cpu_time(
            lambda: model.predict(X, sensitive_features=groups, tolerance=0.1), repeats
        ).seconds
    return ours / bare


def end_to_end(splits: int, *, quick: bool) -> tuple[float, float]:
    """Return the mean seconds of a fit and ten tolerances on Adult, and of the bare estimator."""
    times = []
    for seed in range(splits):
        train, test = load_adult().split(test_size=0.2, random_state=seed)
        if quick:
            train = train.split(test_size=0.1, random_state=0)[1]
        trees = boosting(text_columns(train.X), seed)
        start = time.process_time()
        model = FairBayes(trees, random_state=seed)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        model.predict(test.X, sensitive_features=test.groups, tolerances=TOLERANCES)
        middle = time.process_time()
        clone(trees).fit(train.X, train.y).predict(test.X)
        times.append((middle - start, time.process_time() - middle))
    ours, bare = np.mean(times, axis=0).tolist()
    return ours, bare


def report(n: int, repeats: int, *, quick: bool = False) -> None:
    """Measure, and print the results."""
    print(machine(PACKAGES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.csv", n)
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(repeats):
            for what, command in commands(folder).items():
                found.setdefault(what, []).append(spend(command))
    best = {what: tuple(map(min, zip(*runs, strict=True))) for what, runs in found.items()}
    print(f"\nA CSV of {n:,} rows; processor time and memory, minimum of {repeats} runs:\n")
    lines = [[what, f"{seconds:.2f}", f"{mb:,.0f}"] for what, (seconds, mb) in best.items()]
    print(table(["command", "CPU s", "peak MB"], lines))
    goals = []
    for what in ("predict", "train"):
        ours, bare = best[f"fairdial {what}"], best[f"{what}, bare"]
        goals.append(at_most(f"`fairdial {what}` against a bare script", ours[0] / bare[0], TIMES))
        goals.append(at_most(f"... peak memory of {what}", ours[1] / bare[1], MEMORY))
    with threadpool_limits(1):
        times = linear(n, repeats)
        ours, bare = end_to_end(1 if quick else SPLITS, quick=quick)
    goals.append(at_most("`predict` of logistic regression against the bare one", times, LINEAR))
    print(
        f"\nAdult, fit and ten tolerances: {ours:.2f} s; fit and predict of the bare estimator: "
        f"{bare:.2f} s (means of {SPLITS} splits)."
    )
    goals.append(at_most("Adult end to end against the bare estimator", ours / bare, END_TO_END))
    show_goals(goals)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**6, metavar="N")
    parser.add_argument("--repeats", type=int, default=2, help="runs, of which the minimum counts")
    parser.add_argument("--quick", action="store_true", help="few rows, to check that it works")
    given = parser.parse_args(arguments)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
        report(3_000, 1, quick=True)
    else:
        report(given.rows, given.repeats)


if __name__ == "__main__":
    main()
