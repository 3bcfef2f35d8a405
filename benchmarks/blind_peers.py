"""Compare blind dials with fairlearn's ExponentiatedGradient and OxonFair's inferred groups.

    python benchmarks/blind_peers.py [--adult 5] [--compas 20] [--quick]

The criterion is demographic parity, no library sees the group when it decides, and all of them
train the same gradient boosting. Of the rows, 35% train, 35% calibrate and 30% test. OxonFair gets
the same scores and probabilities of groups as our dial, and fits on the same calibration rows.
ExponentiatedGradient trains on 70% of the rows; against it, our model is fitted on the same 70%, of
which it holds out a part itself.

Accuracies are compared at the peer's own gap on the test rows: our dial is read at many tolerances,
and its accuracy is interpolated between the gaps that these have on the test rows. Differences are
paired by split. Times are CPU times of one thread: ours is the whole fit, which serves all
tolerances, the peers' is one tolerance's.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from common import Floats, machine, table
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from fairdial import FairBayes
from fairdial.datasets import load_adult, load_compas

TOLERANCES = (0.02, 0.05, 0.10)
GRID = np.linspace(0.002, 0.3, 150)
PARTS = (0.35, 0.35, 0.30)  # training, calibration and test rows
HELD = 0.3  # of the 70%, held out against ExponentiatedGradient
PEERS = ("ExponentiatedGradient", "OxonFair, fast", "OxonFair, slow")
PACKAGES = ("fairdial", "fairlearn", "oxonfair", "numpy", "scikit-learn")
DATA = {"Adult": (load_adult, "sex"), "COMPAS": (load_compas, "caucasian")}
HEAD = [
    "library",
    "tolerance",
    "gap",
    "accuracy",
    "ours at that gap",
    "ours minus theirs",
    "their CPU s",
    "our CPU s",
]
Bits = NDArray[np.int_]


def read(name: str) -> tuple[Floats, Bits, Bits]:
    """Return features without the group as numbers, labels and groups."""
    load, group = DATA[name]
    rows = load()
    X = rows.X.drop(columns=[group, "race"] if name == "COMPAS" else group, errors="ignore")
    numbers = X.select_dtypes("number")
    words = pd.get_dummies(X.drop(columns=numbers.columns).astype(str))
    codes = (np.asarray(rows.groups) != np.asarray(rows.groups)[0]).astype(int)
    return np.hstack((numbers, words)).astype(np.float64), np.asarray(rows.y, int), codes


def boosting() -> HistGradientBoostingClassifier:
    """Return what all libraries train."""
    return HistGradientBoostingClassifier(max_iter=50, random_state=0)


def measure(decided: Any, y: Bits, groups: Bits) -> tuple[float, float]:
    """Return accuracy and gap of selection rates."""
    chosen = np.asarray(decided).astype(int).reshape(-1)
    return float((chosen == y).mean()), float(
        abs(chosen[groups == 1].mean() - chosen[groups == 0].mean())
    )


def curve(model: FairBayes, X: Floats, y: Bits, groups: Bits) -> Floats:
    """Return the accuracies (2nd row) by gap (1st row) on test rows, at many tolerances."""
    found = np.array([measure(model.predict(X, tolerance=d), y, groups)[::-1] for d in GRID])
    gaps, places = np.unique(found[:, 0], return_inverse=True)
    sums = np.bincount(places.reshape(-1), found[:, 1])
    return np.array([gaps, sums / np.bincount(places.reshape(-1))])


def gradient(X: Floats, y: Bits, groups: Bits, tolerance: float) -> Callable[[Floats], Any]:
    """Fit ExponentiatedGradient at a tolerance; return what decides."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    limit = DemographicParity(difference_bound=tolerance / 2)  # from the rate of all rows
    fitted = ExponentiatedGradient(boosting(), limit)
    fitted.fit(X, y, sensitive_features=groups)
    return lambda new: fitted.predict(new, random_state=0)


def oxonfair(
    model: FairBayes, X: Floats, y: Bits, groups: Bits, tolerance: float, fast: bool
) -> Callable[[Floats], Any]:
    """Fit OxonFair with our scores and probabilities of groups; return what decides."""
    from oxonfair import DataDict, FairPredictor, group_metrics

    guess = model.scorer_.groups.predict_proba
    scores = model.estimator_.predict_proba
    given = DataDict(y, X, groups)
    predictor = FairPredictor(scores, given, inferred_groups=guess, use_fast=fast)
    predictor.fit(group_metrics.accuracy, group_metrics.demographic_parity, tolerance)
    return lambda new: predictor.predict(DataDict(np.zeros(len(new), int), new))


def run(name: str, seed: int, quick: bool) -> dict[str, Floats]:
    """Return accuracy, gap, seconds, our accuracy at that gap, and our seconds, by tolerance."""
    X, y, groups = read(name)
    places = np.arange(3000 if quick else len(y))
    strata = (y + 2 * groups)[places]
    both, test = train_test_split(places, test_size=PARTS[2], stratify=strata, random_state=seed)
    share = PARTS[1] / (1 - PARTS[2])
    train, held = train_test_split(both, test_size=share, stratify=strata[both], random_state=seed)

    def ours(rows: Any, calibration: float | None) -> tuple[FairBayes, float]:
        start = time.process_time()
        model = FairBayes(boosting(), blind=True, calibration=calibration, random_state=seed)
        model.fit(X[rows], y[rows], sensitive_features=groups[rows])
        if calibration is None:
            model.calibrate(X[held], y[held], sensitive_features=groups[held])
        return model, time.process_time() - start

    alike, used = ours(train, None)
    other, used_both = ours(both, HELD)
    found = {}
    for peer in PEERS:
        model, seconds = (other, used_both) if peer == PEERS[0] else (alike, used)
        line, figures = curve(model, X[test], y[test], groups[test]), []
        for tolerance in TOLERANCES:
            start = time.process_time()
            if peer == PEERS[0]:
                decide = gradient(X[both], y[both], groups[both], tolerance)
            else:
                fast = peer.endswith("fast")
                decide = oxonfair(model, X[held], y[held], groups[held], tolerance, fast)
            spent = time.process_time() - start
            accuracy, gap = measure(decide(X[test]), y[test], groups[test])
            figures.append((accuracy, gap, spent, np.interp(gap, *line), seconds))
        found[peer] = np.array(figures)
    return found


def _mean(values: Floats) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.4f} ± {error:.4f}"


def describe(name: str, runs: Sequence[dict[str, Floats]]) -> tuple[str, list[list[str]]]:
    """Return a table of means and standard errors over splits, and the goals."""
    lines, goals = [], []
    for peer in PEERS:
        figures = np.array([found[peer] for found in runs])  # (splits, tolerances, 5)
        better = figures[:, :, 3] - figures[:, :, 0]
        for j, tolerance in enumerate(TOLERANCES):
            cells = [_mean(figures[:, j, i]) for i in (1, 0, 3)]
            seconds = [f"{figures[:, j, i].mean():.2f}" for i in (2, 4)]
            lines.append([peer, f"{tolerance:.2f}", *cells, _mean(better[:, j]), *seconds])
        errors = better.std(axis=0, ddof=1) / np.sqrt(len(runs))
        worst = float((better.mean(axis=0) / errors).min())
        verdict = "ok" if worst >= -1 else "miss"
        what = f"{name}, accuracy against {peer}, worst tolerance"
        goals.append([what, ">= -1 SE", f"{worst:+.1f} SE", verdict])
        if peer == PEERS[0]:
            share = float((figures[:, :, 4] / figures[:, :, 2]).mean())
            verdict = "ok" if share <= 0.05 else "miss"
            what = f"{name}, our whole fit against one tolerance of {peer}"
            goals.append([what, "<= 5%", f"{share:.1%}", verdict])
    return table(HEAD, lines), goals


def main() -> None:
    """Print a table for each data set, and the goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adult", type=int, default=5, help="splits")
    parser.add_argument("--compas", type=int, default=20, help="splits")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    splits = {"Adult": given.adult, "COMPAS": given.compas}
    os.environ["OMP_NUM_THREADS"] = "1"
    goals = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(machine(PACKAGES))
        for name, n_splits in splits.items():
            if n_splits:
                size = 2 if given.quick else n_splits
                text, found = describe(name, [run(name, s, given.quick) for s in range(size)])
                goals += found
                print(f"\n{name}, {size} splits\n\n{text}", flush=True)
    print(f"\nGoals:\n\n{table(['result', 'goal', 'measured', 'verdict'], goals)}")


if __name__ == "__main__":
    main()
