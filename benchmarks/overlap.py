"""Measure dials for overlapping groups: marginal groups, intersections, and both, on Adult.

    python benchmarks/overlap.py [--quick]

Sex and race make ten intersections. Scores are out-of-fold log-odds of gradient boosting without
these columns. Each dial is calibrated and measured on all rows, so that the tables show what can be
reached on calibration rows, and how far that is from the bound of a linear program. Times are CPU
times of one thread for the dial and four tolerances.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from common import table
from scipy.special import logit
from sklearn.model_selection import cross_val_predict
from threadpoolctl import threadpool_limits

from fairdial import sweep
from fairdial.datasets import load_adult
from fairdial.estimators.learners import boosting, text_columns

CRITERIA = ("demographic_parity", "equal_opportunity", "equalized_odds")
OVERLAPS = ("marginal", "both")
TOLERANCES = (0.10, 0.05, 0.02, 0.01)
HEAD = [
    "criterion",
    "groups",
    "tolerance",
    "reached",
    "gap",
    "accuracy",
    "to bound",
    "CPU s",
]


def describe(quick: bool) -> str:
    """Return a table of all dials."""
    rows = load_adult(sensitive=["sex", "race"])
    people = pd.DataFrame([str(name).split(" & ") for name in rows.groups])
    some = np.arange(len(rows.y))
    if quick:  # with labels of both kinds in every intersection
        some = np.flatnonzero(people[1].isin(["Black", "White"]))[:4000]
    X, y, people = rows.X.iloc[some], rows.y[some], people.iloc[some]
    model = boosting(text_columns(X), 0)
    scores = logit(cross_val_predict(model, X, y, cv=3, method="predict_proba")[:, 1])
    lines = []
    for criterion in CRITERIA:
        for overlap in OVERLAPS:
            start = time.process_time()
            frontier = sweep(scores, people, y, criterion=criterion, overlap=overlap, min_count=1)
            points = frontier.at(list(TOLERANCES))
            seconds = time.process_time() - start
            for place, point in enumerate(points):
                bound, value = point.bound, point.expected_value
                assert bound is not None
                assert value is not None
                lines.append(
                    [
                        criterion,
                        overlap,
                        f"{point.tolerance:.2f}",
                        "yes" if point.feasible else "no",
                        f"{point.gap:.4f}",
                        f"{point.accuracy:.4f}",
                        f"{bound - value:.5f}" if point.feasible else "",
                        "" if place else f"{seconds:.2f}",
                    ]
                )
    return table(HEAD, lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        print(describe(given.quick))


if __name__ == "__main__":
    main()
