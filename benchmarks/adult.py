"""Accuracy on Adult at matched gaps: networks with and without GFB, beside simpler scorers.

The paper's 5 splits and 15 fresh ones, all of the same 48,842 rows. Within a split the networks of
one shape share initial weights, batch order and validation rows; the null row is the plain network
against itself with another seed (other weights, batches and validation rows).
Early stopping looks at validation rows, the dial at calibration rows; test rows are opened once,
for the table. Differences are paired by split.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from common import machine, table
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fairdial import GFB, FairBayes, FairdialWarning, Network, TableEncoder, paper_settings
from fairdial.datasets import Dataset, load_adult

PAPER_SEEDS = (0, 5, 10, 15, 20)
FRESH_SEEDS = tuple(range(1001, 1016))
GAPS = (0.02, 0.05, 0.10)
BASELINE = "FairBayes net, 3 members"
NULL_OFFSET = 7919
VALIDATION = 0.1


def methods(quick: bool) -> dict[str, Callable[[int], Any]]:
    """By name, what makes the estimator for a seed."""
    short: dict[str, Any] = {"epochs": 2} if quick else {}

    def boosting(seed: int) -> Any:
        model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
        return FairBayes(model, calibration=None)

    def logistic(seed: int) -> Any:  # noqa: ARG001
        model = make_pipeline(TableEncoder(), LogisticRegression(max_iter=1000))
        return FairBayes(model, calibration=None)

    def net(seed: int, members: int = 3) -> Any:
        network = Network(members=members, validation=VALIDATION, **short)
        return FairBayes(network, calibration=None, random_state=seed)

    def gfb(seed: int, **settings: Any) -> Any:
        network = Network(validation=VALIDATION, **short)
        return GFB(**({"network": network} | settings), calibration=None, random_state=seed)

    def paper(seed: int) -> Any:
        settings = paper_settings("gfb", "adult")
        settings["network"].set_params(validation=VALIDATION, **short)
        return gfb(seed, **settings)

    return {
        "logistic regression": logistic,
        "gradient boosting": boosting,
        "FairBayes net, 1 member": lambda seed: net(seed, 1),
        BASELINE: net,
        "null: the same, another seed": lambda seed: net(seed + NULL_OFFSET),
        "GFB": gfb,
        "GFB, the paper's settings": paper,
    }


def matched(model: Any, rows: Dataset) -> NDArray[np.float64]:
    """Accuracy on these rows where the dial brings their gap down to each of GAPS."""
    logits = model.logits(rows.X, sensitive_features=rows.groups)
    codes = (rows.groups == model.frontier_.groups[1]).astype(int)
    frontier = model.frontier_.thin(400)
    thresholds = frontier.states.read(np.arange(len(frontier)))[0]
    gaps, accuracy = np.empty(len(thresholds)), np.empty(len(thresholds))
    for i, limits in enumerate(thresholds):
        decisions = logits > limits[codes]
        rates = [decisions[codes == a].mean() for a in range(2)]
        gaps[i], accuracy[i] = abs(rates[1] - rates[0]), (decisions == rows.y).mean()
    falling = np.minimum.accumulate(gaps)
    return np.interp(GAPS, falling[::-1], accuracy[::-1])


def trial(seed: int, quick: bool) -> list[dict[str, Any]]:
    """All methods on one split."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FairdialWarning)
    parts = load_adult().paper_split(seed)
    fit = Dataset(
        pd.concat([parts.train.X, parts.validation.X]),
        np.concatenate([parts.train.y, parts.validation.y]),
        np.concatenate([parts.train.groups, parts.validation.groups]),
    )
    held, test, lines = parts.calibration, parts.test, []
    for name, make in methods(quick).items():
        start = time.process_time()
        model = make(seed).fit(fit.X, fit.y, sensitive_features=fit.groups)
        seconds = time.process_time() - start
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
        accuracy = matched(model, test)
        history = getattr(model, "history_", None)
        lines.append(
            {
                "seed": seed,
                "method": name,
                **{f"accuracy at {g:.2f}": a for g, a in zip(GAPS, accuracy, strict=True)},
                "seconds": seconds,
                "epochs": np.nan if history is None else len(history),
                "residual": np.nan
                if history is None or "aux_residual" not in history
                else history["aux_residual"][model.best_epoch_],
            }
        )
    return lines


def summary(frame: pd.DataFrame) -> str:
    """Means, and paired differences to the baseline in points of accuracy with standard errors."""
    columns = [f"accuracy at {g:.2f}" for g in GAPS]
    base = frame[frame["method"] == BASELINE].set_index("seed")[columns]
    lines = []
    for name, part in frame.groupby("method", sort=False):
        values = part.set_index("seed")[columns]
        off = 100 * (values - base)
        mean = off.mean(axis=1)
        error = off.std() / np.sqrt(len(off))
        lines.append(
            [
                str(name),
                *(f"{values[c].mean():.4f}" for c in columns),
                *(
                    "-" if name == BASELINE else f"{off[c].mean():+.2f} +- {error[c]:.2f}"
                    for c in columns
                ),
                "-"
                if name == BASELINE
                else f"{mean.mean():+.3f} +- {mean.std() / np.sqrt(len(mean)):.3f}",
                f"{part['seconds'].mean():.1f}",
                "-" if part["residual"].isna().all() else f"{part['residual'].median():.2f}",
            ]
        )
    head = [
        "method",
        *(f"at gap {g:.2f}" for g in GAPS),
        *(f"points, {g:.2f}" for g in GAPS),
        "points, mean",
        "CPU s a fit",
        "aux residual",
    ]
    return table(head, lines)


def main() -> None:
    """Run the trials and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; figures mean nothing")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", help="also write every trial to this file")
    given = parser.parse_args()
    seeds = PAPER_SEEDS[:2] if given.quick else (*PAPER_SEEDS, *FRESH_SEEDS)
    print(machine(["fairdial", "torch", "scikit-learn"]))
    start = time.perf_counter()
    trials = Parallel(n_jobs=given.jobs)(delayed(trial)(seed, given.quick) for seed in seeds)
    frame = pd.DataFrame([line for lines in trials for line in lines])
    if given.csv:
        frame.to_csv(given.csv, index=False)
    print(
        f"\nAdult, demographic parity, accuracy on test rows at matched gaps; differences to "
        f'"{BASELINE}" in points, paired, with standard errors.'
    )
    for title, chosen in (
        (f"The paper's {len(PAPER_SEEDS)} splits", PAPER_SEEDS),
        (f"{len(FRESH_SEEDS)} fresh splits", FRESH_SEEDS),
        ("All splits", seeds),
    ):
        part = frame[frame["seed"].isin(chosen)]
        if len(part):
            print(f"\n{title}\n\n{summary(part)}")
    print(f"\nWhole run: {(time.perf_counter() - start) / 60:.1f} minutes, {given.jobs} processes.")


if __name__ == "__main__":
    main()
