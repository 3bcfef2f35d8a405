"""Run a trial whose operating points are the decisions at the plan's tolerances alone.

That is the form in which other libraries can be compared: each is asked for a rule at each
tolerance, and so is the dial.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairdial._arrays import Codes, Counts, Floats, Mask
from fairdial.bench.clock import Clock
from fairdial.bench.peers import PEERS, PeerProcess, joint_of
from fairdial.bench.sources import Parts, join_rows
from fairdial.bench.store import Config
from fairdial.datasets import Dataset
from fairdial.errors import (
    CannotCertifyError,
    ConstantDecisionsWarning,
    InfeasibleToleranceWarning,
)
from fairdial.estimators.blind import BlindScorer
from fairdial.estimators.fairbayes import FairBayes
from fairdial.estimators.learners import boosting, text_columns

GROUP_SEED = 0  # of the classifier of groups and labels together

Decide = Callable[[Dataset], Mask]  # (T, n) decisions of rows


def study_decisions(config: Config, parts: Parts, model: Any) -> tuple[dict[str, Any], Clock]:
    """Return the result of a trial, and its timing.

    Parameters
    ----------
    config : Config
        With ``curve`` set to "tolerances".
    parts : Parts
        The rows.
    model : estimator
        The estimator of the method, not fitted.
    """
    peer, clock = config["method"].get("peer"), Clock()
    names = np.unique(parts.calibration.groups)
    if peer is None:
        found = _dial(config, parts, model, clock, names)
    else:
        with PeerProcess(peer) as process:
            found = _peer(config, parts, model, clock, names, process)
    return {"data": parts.key, "groups": [str(name) for name in names], **found}, clock


# ---- the dial ----------------------------------------------------------------------------------


def _dial(config: Config, parts: Parts, model: Any, clock: Clock, names: Any) -> dict[str, Any]:
    fit, held = parts.fit, parts.calibration
    crossed = config["method"].get("calibration") == "crossed"
    if crossed:
        fit = join_rows(fit, held)
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    clock.lap("fit")
    if not crossed:
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
    clock.lap("calibrate")
    tolerances = config["tolerances"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        chosen = model.frontier_.at(np.asarray(tolerances, np.float64))
    clock.lap("choose")
    certified = [_can_certify(model, t, config["confidence"]) for t in tolerances]
    clock.lap("certify")

    def decide(rows: Dataset) -> Mask:
        logits = model.logits(rows.X, sensitive_features=rows.groups)
        sees = model.scorer_.posterior(rows.X) if model.blind else rows.groups
        found: list[tuple[float, dict[str, float]]] = [(t, {}) for t in tolerances] + [
            (t, {"confidence": config["confidence"]})
            for t, yes in zip(tolerances, certified, strict=True)
            if yes
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.array([model.frontier_.decide(logits, sees, t, **more) for t, more in found])

    return _count(parts, names, decide, len(tolerances), chosen.feasible.tolist(), certified, clock)


def _can_certify(model: Any, tolerance: float, confidence: float) -> bool:
    if model.cv is not None:
        return False
    try:
        model.frontier_.at([tolerance], confidence=confidence)
    except CannotCertifyError:
        return False
    return True


# ---- other libraries ---------------------------------------------------------------------------


def _peer(
    config: Config, parts: Parts, model: FairBayes, clock: Clock, names: Any, process: PeerProcess
) -> dict[str, Any]:
    fit, held, blind = parts.fit, parts.calibration, model.blind
    describe: Callable[[Dataset], dict[str, Any]]
    if PEERS[process.name].trains:
        held = join_rows(fit, held)
        describe = _features(held, config["seed"])
    else:
        describe = _scores(model, fit, len(names))
        clock.lap("fit")

    def rows_of(rows: Dataset, *, labels: bool) -> dict[str, Any]:
        codes = _codes(rows, names)
        shown = describe(rows)
        if labels:
            return shown | {"codes": codes, "y": rows.y}
        return shown if blind else shown | {"codes": codes}

    given = rows_of(held, labels=True)
    clock.lap("prepare")
    tolerances = config["tolerances"]
    seconds = process.fit(given, config["criterion"], tolerances)
    clock.lap("calibrate")
    clock.seconds["calibrate_cpu"] = float(np.sum(seconds))
    clock.seconds["one_cpu"] = float(np.mean(seconds))
    return _count(
        parts,
        names,
        lambda rows: process.decide(rows_of(rows, labels=False)),
        len(tolerances),
        [True] * len(tolerances),
        [False] * len(tolerances),
        clock,
    )


def _scores(model: FairBayes, fit: Dataset, n_groups: int) -> Callable[[Dataset], dict[str, Any]]:
    """Train the method's scorer; return what describes rows by their scores."""
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    names, scorer = np.unique(fit.groups), model.scorer_
    joint: Any = None
    if isinstance(scorer, BlindScorer):
        cells = 2 * _codes(fit, names) + fit.y
        joint = boosting(text_columns(fit.X), GROUP_SEED).fit(fit.X, cells)

    def describe(rows: Dataset) -> dict[str, Any]:
        codes = _codes(rows, names)
        logits = scorer.logits(rows.X, codes)
        p = 1.0 / (1.0 + np.exp(-logits))
        if joint is None:
            return {"p": p, "joint": joint_of(p, codes, n_groups)}
        shares = joint.predict_proba(rows.X).reshape(len(rows), n_groups, 2)
        return {"p": p, "joint": shares}

    return describe


def _features(rows: Dataset, seed: int) -> Callable[[Dataset], dict[str, Any]]:
    """Return what describes rows by features, as small trees see them."""
    X = pd.DataFrame(rows.X)
    texts = text_columns(X)
    model: Any = boosting(texts, seed)
    if not texts:
        return lambda some: {"X": np.asarray(some.X, np.float64), "n_categories": 0}
    encoder = model[0]
    means = encoder.fit_transform(X, rows.y)  # cross-fitted for the rows that train

    def describe(some: Dataset) -> dict[str, Any]:
        found = means if some is rows else encoder.transform(some.X)
        return {"X": np.asarray(found, np.float64), "n_categories": len(texts)}

    return describe


# ---- counts ------------------------------------------------------------------------------------


def _count(
    parts: Parts,
    names: Any,
    decide: Decide,
    n: int,
    feasible: Sequence[bool],
    certified: Sequence[bool],
    clock: Clock,
) -> dict[str, Any]:
    """Open the test rows, decide on them, and count."""
    held = parts.calibration
    on_calibration = _selected(held, names, decide(held))
    parts.test.release()
    test = parts.test.open()
    on_test = _selected(test, names, decide(test))
    clock.lap("evaluate")
    states = list(range(on_test.shape[-1]))
    places = iter(states[n:])
    return {
        "rows": {
            "train": len(parts.fit),
            "calibration": _cells(held, names).tolist(),
            "test": _cells(test, names).tolist(),
        },
        "states": {
            "state": states,
            "calibration": on_calibration.tolist(),
            "test": on_test.tolist(),
        },
        "points": states[:n][::-1],
        "curve": states[:n][::-1],
        "grid": states[:n],
        "feasible": list(feasible),
        "certified": [next(places) if yes else None for yes in certified],
        "epochs": None,
        "logits": None,
    }


def _codes(rows: Dataset, names: Any) -> Codes:
    return np.asarray(np.searchsorted(names, rows.groups), np.intp)


def _cells(rows: Dataset, names: Any) -> Counts:
    """Return the number of rows by label and group, (2, K)."""
    cells = rows.y * len(names) + _codes(rows, names)
    return np.bincount(cells, minlength=2 * len(names)).reshape(2, -1)


def _selected(rows: Dataset, names: Any, decisions: Floats | Mask) -> Counts:
    """Return the rows that each rule selects, by label and group, (2, K, T)."""
    cells = rows.y * len(names) + _codes(rows, names)
    counts = [np.bincount(cells[d], minlength=2 * len(names)) for d in np.asarray(decisions)]
    return np.array(counts).T.reshape(2, len(names), -1)
