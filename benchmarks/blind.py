"""Measure blind dials: accuracy on Adult without the group, what blindness costs, and time.

    python benchmarks/blind.py [--splits 20] [--rows 100000 1000000] [--only PART]

Adult is divided as in LinearPost (Xian and Zhao, 2024): 35% of the rows train the classifiers, 35%
calibrate and 30% test. Scores and probabilities of the groups come from gradient boosting on the
features without sex. The dial with the group has the same scores. Tolerances aren't tuned on test
rows: they are the ones that are named.

Times are CPU times of one thread, of ``sweep_blind`` alone, which prepares all tolerances.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import numpy as np
from common import Floats, cpu_time, machine, table
from scipy.special import expit, softmax
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from fairdial import FairBayes, sweep_blind
from fairdial.datasets import load_adult
from fairdial.estimators.learners import boosting, text_columns
from fairdial.metrics import gap

TOLERANCES = (0.02, 0.05, 0.10)
CRITERIA = ("demographic_parity", "equalized_odds")
PARTS = (0.35, 0.35, 0.30)  # training, calibration and test rows


def measure_adult(seed: int, quick: bool) -> tuple[Floats, Floats]:
    """Return figures of the dials, (criteria, dials, tolerances, 3), and the AUC of each group.

    The blind dial comes first; figures are accuracy and gap on test rows, and whether the tolerance
    was reached on the calibration rows.
    """
    rows = load_adult()
    places = np.arange(3000 if quick else len(rows.y))
    strata = rows.y + 2 * (rows.groups == rows.groups[0])
    rest, test = train_test_split(
        places, test_size=PARTS[2], stratify=strata[places], random_state=seed
    )
    train, held = train_test_split(
        rest, test_size=PARTS[1] / (1 - PARTS[2]), stratify=strata[rest], random_state=seed
    )
    X = rows.X.drop(columns="sex", errors="ignore")
    model = FairBayes(
        boosting(text_columns(X), seed), blind=True, calibration=None, random_state=seed
    )
    model.fit(X.iloc[train], rows.y[train], sensitive_features=rows.groups[train])
    given = {"sensitive_features": rows.groups[held]}
    auc = model.blindness(X.iloc[held], rows.y[held], **given).auc.to_numpy()
    truth, groups, found = rows.y[test], rows.groups[test], []
    for criterion in CRITERIA:
        for blind in (True, False):
            model.set_params(blind=blind, criterion=criterion)
            model.calibrate(X.iloc[held], rows.y[held], **given)
            sensitive = {} if blind else {"sensitive_features": groups}
            for tolerance in TOLERANCES:
                decided = model.predict(X.iloc[test], tolerance=tolerance, **sensitive)
                reached = gap(truth, decided, sensitive_features=groups, criterion=criterion)
                feasible = model.frontier_.at(tolerance).feasible
                found.append((float((truth == decided).mean()), reached, feasible))
    return np.array(found).reshape(len(CRITERIA), 2, len(TOLERANCES), 3), auc


def describe_adult(splits: int, quick: bool) -> str:
    """Return a table of means and standard errors over splits, and the AUC."""
    runs = [measure_adult(seed, quick) for seed in range(splits)]
    figures = np.array([found for found, _ in runs])
    lines = []
    for c, criterion in enumerate(CRITERIA):
        for i, name in enumerate(("blind", "with the group")):
            for j, tolerance in enumerate(TOLERANCES):
                accuracy = figures[:, c, :, j, 0]
                cells = [_mean(accuracy[:, i]), _mean(figures[:, c, i, j, 1])]
                cells.append(f"{figures[:, c, i, j, 2].mean():.0%}")
                cost = _mean(accuracy[:, 1] - accuracy[:, 0]) if i == 0 else ""
                lines.append([name, criterion, f"{tolerance:.2f}", *cells, cost])
    head = [
        "dial",
        "criterion",
        "tolerance",
        "test accuracy",
        "test gap",
        "reached",
        "cost of blindness",
    ]
    auc = np.mean([auc for _, auc in runs])
    return f"{table(head, lines)}\n\nAUC of the group on calibration rows: {auc:.3f}"


def _mean(values: Floats) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.4f} ± {error:.4f}"


def draw_scores(n: int, n_groups: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return logits, probabilities of groups, groups and labels of a known law."""
    rng = np.random.default_rng(0)
    shares = softmax(2 * rng.normal(size=(n, n_groups)), axis=1)
    codes = (rng.random(n)[:, None] > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)
    logits = rng.normal(shares @ np.linspace(-1, 1, n_groups), 1.0)
    return logits, shares, codes, (rng.random(n) < expit(logits)).astype(int)


def describe_times(sizes: Sequence[int]) -> str:
    """Return a table of seconds by rows, groups and criterion."""
    lines = []
    for n in sizes:
        for n_groups in (2, 5):
            rows = draw_scores(n, n_groups)
            for criterion in CRITERIA:
                timing = cpu_time(lambda r=rows, c=criterion: sweep_blind(*r, criterion=c), 2)
                lines.append([f"{n:,}", str(n_groups), criterion, f"{timing.seconds:.2f}"])
    return table(["rows", "groups", "criterion", "CPU s, all tolerances"], lines)


def main() -> None:
    """Print the machine and both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--only", choices=("adult", "time"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    splits, sizes = given.splits, [int(n) for n in given.rows]
    if given.quick:
        splits, sizes = 2, [5_000]
    os.environ["OMP_NUM_THREADS"] = "1"
    with threadpool_limits(1):
        print(machine(["numpy", "scipy", "scikit-learn"]), "\n")
        if given.only != "time":
            print(describe_adult(splits, given.quick), "\n")
        if given.only != "adult":
            print(describe_times(sizes))


if __name__ == "__main__":
    main()
