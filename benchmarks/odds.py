"""Compare the accuracy of equalized-odds rules on test rows of Adult and COMPAS.

    python benchmarks/odds.py --records FILE... [--methods NAME...] [--data adult compas] [--quick]
    python benchmarks/odds.py --records FILE... --table

runs the trials that aren't in the records yet, appends them to the first file, and prints the
tables. ``--table`` prints the tables of stored records only.

Each split has 30% test rows; a quarter of the others is for calibration. The methods of the first
table share the scores of one gradient boosting classifier, which sees the group and is trained on
the training rows, and find their thresholds on the calibration rows. Those of the second table use
all rows but the test rows at once: fairlearn's ExponentiatedGradient trains the same classifier
about 25 times per tolerance, and fairdial cross-fits it once, at the first tolerance. The reduction
limits the distance of each group's rate to that of all rows, a weaker demand than equalized odds at
the same tolerance; "as reduction" is fairdial under that demand. Records hold counts of decisions
by label and group; accuracy and gaps are computed from them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import lzma
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
from common import Rows, machine, table
from numpy.typing import NDArray
from peers import ErrorParity, Fairlearn, OxonFair, Peer, quiet
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from fairdial import sweep
from fairdial.bench.sources import join_rows
from fairdial.bench.store import command_line, environment
from fairdial.datasets import Dataset, load_adult, load_compas
from fairdial.estimators.learners import SMALL_TREES

CRITERION = "equalized_odds"
TOLERANCES = (0.02, 0.05, 0.10)
LOADERS = {"adult": load_adult, "compas": load_compas}
SPLITS = {"adult": 12, "compas": 20}
FOLDS = 5
PACKAGES = ("fairdial", "numpy", "scikit-learn", "fairlearn", "oxonfair", "error-parity")

Mask = NDArray[np.bool_]
Decisions = tuple[Mask | None, Mask]  # of calibration rows, if there are any, and of test rows


# ---- data ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Training, calibration and test rows; what is computed from them is kept."""

    train: Dataset
    calibration: Dataset
    test: Dataset
    seed: int

    @classmethod
    def make(cls, name: str, seed: int, n_rows: int | None = None) -> Split:
        """Split a data set, or a part of it."""
        data = LOADERS[name]()
        if n_rows is not None:
            data = data.subset(np.random.default_rng(0).permutation(len(data))[:n_rows])
        rest, test = data.split(test_size=0.3, random_state=seed)
        return cls(*rest.split(test_size=0.25, random_state=seed), test, seed)

    @property
    def both(self) -> Dataset:
        """Training and calibration rows."""
        return join_rows(self.train, self.calibration)

    def booster(self) -> HistGradientBoostingClassifier:
        """Return the classifier that all methods use, not fitted."""
        return HistGradientBoostingClassifier(random_state=self.seed, **SMALL_TREES)

    @cached_property
    def model(self) -> HistGradientBoostingClassifier:
        """The classifier, fitted to the training rows."""
        return self.booster().fit(features(self.train), self.train.y)

    @cached_property
    def calibration_rows(self) -> Rows:
        """The calibration rows, scored."""
        return self._scored(self.calibration)

    @cached_property
    def test_rows(self) -> Rows:
        """The test rows, scored."""
        return self._scored(self.test)

    @cached_property
    def cross_fitted(self) -> tuple[Rows, Rows]:
        """All other rows with out-of-fold scores, and the test rows with the folds' mean scores."""
        data, X = self.both, features(self.both)
        strata = 2 * codes(data) + data.y
        logits, on_test = np.empty(len(data)), []
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
        for fit, held in folds.split(X, strata):
            model = self.booster().fit(X.iloc[fit], data.y[fit])
            logits[held] = model.decision_function(X.iloc[held])
            on_test.append(model.decision_function(features(self.test)))
        test = Rows(np.mean(on_test, axis=0), codes(self.test), self.test.y)
        return Rows(logits, codes(data), data.y), test

    def _scored(self, data: Dataset) -> Rows:
        return Rows(self.model.decision_function(features(data)), codes(data), data.y)


def features(data: Dataset) -> pd.DataFrame:
    """Return the features with the group as one of them."""
    return data.X.assign(group=pd.Categorical(data.groups))


def codes(data: Dataset) -> NDArray[np.intp]:
    """Return the groups as 0 and 1."""
    return np.asarray(np.unique(data.groups, return_inverse=True)[1], np.intp)


# ---- methods ---------------------------------------------------------------------------------


def unconstrained(split: Split, _: float) -> Decisions:
    """Decide by the scores alone."""
    return split.calibration_rows.logits > 0, split.test_rows.logits > 0


def dial(rows: Rows, others: Sequence[Rows], tolerance: float, **options: Any) -> list[Mask]:
    """Find fairdial's rule on some rows, and decide on others; a lottery draws by row number."""
    frontier = sweep(rows.logits, rows.groups, rows.y, **{"criterion": CRITERION, **options})
    return [
        frontier.decide(these.logits, these.groups, tolerance, keys=np.arange(len(these)))
        for these in others
    ]


def searched(split: Split, tolerance: float, **options: Any) -> Decisions:
    """Decide by fairdial's rule."""
    rows, test = split.calibration_rows, split.test_rows
    held, new = dial(rows, (rows, test), tolerance, **options)
    return held, new


def peer(kind: type[Peer], split: Split, tolerance: float) -> Decisions:
    """Decide by another library's rule."""
    rows, test = split.calibration_rows, split.test_rows
    fitted = (found := kind(rows, CRITERION)).fit(tolerance)
    return found.decisions(fitted), found.apply(fitted, test.probabilities, test.groups)


def cross_fitted(split: Split, tolerance: float, **options: Any) -> Decisions:
    """Decide by fairdial's rule on out-of-fold scores of all rows but the test rows."""
    rows, test = split.cross_fitted
    return None, dial(rows, (test,), tolerance, **options)[0]


def as_reduction(split: Split, tolerance: float, **options: Any) -> Decisions:
    """Decide by fairdial's rule under the demand of ExponentiatedGradient.

    It limits the distance of each group's rate to the rate of all rows. With two groups, the rates
    may then differ by more than the limit, by its quotient with the larger group's share.
    """
    rows, _ = split.cross_fitted
    limits = {
        name: tolerance / np.bincount(rows.groups[rows.y == label]).max() * np.sum(rows.y == label)
        for name, label in (("equal_opportunity", 1), ("predictive_equality", 0))
    }
    return cross_fitted(split, max(limits.values()), criterion=limits, **options)


def reduction(split: Split, tolerance: float) -> Decisions:
    """Decide by fairlearn's ExponentiatedGradient."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    rows = split.both
    model = ExponentiatedGradient(split.booster(), EqualizedOdds(difference_bound=tolerance))
    model.fit(features(rows), rows.y, sensitive_features=rows.groups)
    return None, np.asarray(model.predict(features(split.test), random_state=0) == 1)


@dataclass(frozen=True)
class Method:
    """A way to decide, and where it runs."""

    decide: Callable[[Split, float], Decisions]
    needs: str = "fairdial"
    calibrated: bool = True  # on the shared scores; otherwise trained on all rows but the test rows
    adult: tuple[float, ...] = TOLERANCES
    adult_splits: int = SPLITS["adult"]

    def trials(self, data: str, splits: int) -> Iterator[tuple[int, float]]:
        """Yield the seeds and tolerances to run."""
        most = min(splits, self.adult_splits) if data == "adult" else splits
        for seed in range(most):
            for tolerance in self.adult if data == "adult" else TOLERANCES:
                yield seed, tolerance


METHODS = {
    "unconstrained": Method(unconstrained),
    "fairdial": Method(searched),
    "fairdial, labels": Method(partial(searched, value="labels")),
    "fairdial, nested": Method(partial(searched, nested=True)),
    "fairdial, lottery": Method(partial(searched, randomize="hash")),
    "error-parity": Method(partial(peer, ErrorParity), "error_parity"),
    "oxonfair": Method(partial(peer, OxonFair), "oxonfair"),
    "fairlearn, strict": Method(partial(peer, Fairlearn), "fairlearn"),
    "fairdial, cross-fitted": Method(cross_fitted, calibrated=False),
    "fairdial, cross-fitted lottery": Method(
        partial(cross_fitted, randomize="hash"), calibrated=False
    ),
    "fairdial, cross-fitted, as reduction": Method(as_reduction, calibrated=False),
    "fairdial, cross-fitted lottery, as reduction": Method(
        partial(as_reduction, randomize="hash"), calibrated=False
    ),
    "fairlearn, reduction": Method(
        reduction, "fairlearn", calibrated=False, adult=(0.02,), adult_splits=10
    ),
}
REFERENCES = {True: "fairdial", False: "fairlearn, reduction"}  # by `Method.calibrated`


# ---- records ---------------------------------------------------------------------------------


def count(data: Dataset, selected: Mask | None) -> dict[str, Any] | None:
    """Return all and selected rows by label and group."""
    if selected is None:
        return None
    cells = data.y * 2 + codes(data)
    return {
        "rows": np.bincount(cells, minlength=4).reshape(2, 2).tolist(),
        "selected": np.bincount(cells[selected], minlength=4).reshape(2, 2).tolist(),
    }


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the trials of record files, without the lines that describe a run."""
    records = []
    for file in filter(Path.is_file, files):
        with open_text(file, "r") as lines:
            records += map(json.loads, lines)
    return [record for record in records if "method" in record]


def open_text(file: Path, mode: Literal["r", "a"]) -> IO[str]:
    """Open a file of records, compressed if its name ends in .xz."""
    return lzma.open(file, f"{mode}t") if file.suffix == ".xz" else file.open(mode)


def key(record: dict[str, Any]) -> tuple[str, str, int, float]:
    """Return what identifies a trial."""
    return record["data"], record["method"], record["seed"], record["tolerance"]


def run(
    names: Sequence[str],
    data: Sequence[str],
    done: set[tuple[str, str, int, float]],
    splits: dict[str, int],
    n_rows: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a record for every trial that isn't done."""
    todo = [
        (name, seed, tolerance, method)
        for name in data
        for method in names
        for seed, tolerance in METHODS[method].trials(name, splits[name])
        if (name, method, seed, tolerance) not in done
        and importlib.util.find_spec(METHODS[method].needs) is not None
    ]
    split, last = None, None
    for name, seed, tolerance, method in sorted(todo, key=lambda trial: trial[:2]):
        if (name, seed) != last:
            split, last = Split.make(name, seed, n_rows), (name, seed)
        assert split is not None
        if METHODS[method].calibrated:
            _ = split.calibration_rows, split.test_rows  # scoring isn't timed
        start = time.process_time()
        on_calibration, on_test = METHODS[method].decide(split, tolerance)
        yield {
            "data": name,
            "method": method,
            "seed": seed,
            "tolerance": tolerance,
            "cpu": round(time.process_time() - start, 4),
            "calibration": count(split.calibration, on_calibration),
            "test": count(split.test, on_test),
        }


# ---- tables ----------------------------------------------------------------------------------


def accuracy(counts: dict[str, Any]) -> float:
    """Return the share of correct decisions."""
    rows, selected = np.array(counts["rows"]), np.array(counts["selected"])
    return float((selected[1].sum() + (rows - selected)[0].sum()) / rows.sum())


def gaps(counts: dict[str, Any]) -> tuple[float, float]:
    """Return the gaps of false and true positive rates."""
    rates = np.array(counts["selected"]) / np.array(counts["rows"])
    false_positive, true_positive = np.ptp(rates, axis=1).tolist()
    return false_positive, true_positive


def gap(counts: dict[str, Any]) -> float:
    """Return the larger of both gaps."""
    return max(gaps(counts))


def mean(values: Sequence[float], digits: int = 4) -> str:
    """Return a mean and its standard error over splits."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def difference(one: dict[int, float], two: dict[int, float]) -> str:
    """Return the mean difference over common splits in points, with its standard error."""
    common = sorted(one.keys() & two.keys())
    values = [100 * (one[seed] - two[seed]) for seed in common]
    if not values:
        return "-"
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):+.2f} ± {error:.2f}"


def show(records: Sequence[dict[str, Any]]) -> str:
    """Return the tables of records."""
    found: dict[tuple[str, float, str], dict[int, dict[str, Any]]] = {}
    for record in records:
        place = record["data"], record["tolerance"], record["method"]
        found.setdefault(place, {})[record["seed"]] = record
    parts = []
    for data in LOADERS:
        for calibrated, base in REFERENCES.items():
            lines = []
            for name, method in METHODS.items():
                for tolerance in TOLERANCES:
                    trials = found.get((data, tolerance, name))
                    if trials and method.calibrated == calibrated:
                        other = found.get((data, tolerance, base), {})
                        lines.append(_line(name, tolerance, trials, other, calibrated))
            if lines:
                kind = "shared scores" if calibrated else "trained on all rows but the test rows"
                parts.append(f"**{data}, equalized odds, {kind}**, against {base}\n")
                parts.append(table(HEAD, sorted(lines, key=lambda line: line[1])) + "\n")
    return "\n".join(parts)


HEAD = (
    "method",
    "tolerance",
    "splits",
    "test accuracy",
    "difference, points",
    "test gap",
    "difference, points",
    "gaps of FPR and TPR",
    "calibration gap too large",
    "CPU s",
)


def _line(
    name: str,
    tolerance: float,
    trials: dict[int, dict[str, Any]],
    base: dict[int, dict[str, Any]],
    calibrated: bool,
) -> list[str]:
    """Return the cells of a method at a tolerance."""
    ours, theirs = (
        [{seed: measure(one["test"]) for seed, one in runs.items()} for measure in (accuracy, gap)]
        for runs in (trials, base)
    )
    same, both = trials is base, np.mean([gaps(one["test"]) for one in trials.values()], axis=0)
    broken = "-"
    if calibrated:
        held = [gap(one["calibration"]) for one in trials.values()]
        broken = f"{np.mean([value > tolerance + 1e-12 for value in held]):.0%}"
    return [
        name,
        f"{tolerance:.2f}",
        str(len(trials)),
        mean(list(ours[0].values())),
        "" if same else difference(ours[0], theirs[0]),
        mean(list(ours[1].values()), 3),
        "" if same else difference(ours[1], theirs[1]),
        "{:.3f}, {:.3f}".format(*both),
        broken,
        f"{np.mean([one['cpu'] for one in trials.values()]):.3g}",
    ]


# ---- the command -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--data", nargs="+", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--table", action="store_true", help="print the stored records only")
    parser.add_argument("--quick", action="store_true", help="few rows, to check that it works")
    given = parser.parse_args(arguments)
    quiet()
    records = read(given.records)
    if given.table:
        print(show(records))
        return
    splits, n_rows = SPLITS, None
    if given.quick:
        given.data, splits, n_rows = ["compas"], {"compas": 2}, 2_000
    with threadpool_limits(1):
        trials = run(given.methods, given.data, set(map(key, records)), splits, n_rows)
        if given.records and not given.quick:
            origin = {"run": command_line(), "environment": environment()}
            given.records[0].parent.mkdir(parents=True, exist_ok=True)
            with open_text(given.records[0], "a") as file:
                print(json.dumps(origin | {"machine": machine(PACKAGES)}), file=file)
                for record in trials:
                    print(json.dumps(record), file=file, flush=True)
                    records.append(record)
        else:
            records += trials
    print(machine(PACKAGES) + "\n")
    print(show(records))


if __name__ == "__main__":
    main()
