"""The facts of an audit report, as JSON data: what is decided, for whom, and what it does.

The data depend on the model, the rows, the audit log and the arguments only, not on the time: who
repeats the command gets the same report.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fairdial._validation import check_confidence, check_one_tolerance
from fairdial._version import __version__
from fairdial.core.frontier import Frontier, refuse_groupings, refuse_prices
from fairdial.core.point import Point, number_of_rows
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import json_name
from fairdial.errors import CannotCertifyError, FairdialWarning, InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.registry import method_of
from fairdial.report.fresh import InUse, Rows, measure_rows, number
from fairdial.serve.audit import AuditLog, is_database
from fairdial.serve.page_criterion import describe_criterion
from fairdial.serve.page_data import check_label_names, match_people

__all__ = ["Rows", "report_data"]

FORMAT, VERSION = "fairdial.report", 1
UNLIMITED = 1.0  # a tolerance that every gap is within
ROUND = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)  # tolerances of the table
CURVE, SEARCHED_CURVE = 60, 10  # points of the chart; fewer where each is a search
MOST_ENTRIES = 1_000  # of the audit log, the newest

Json = dict[str, Any]


def report_data(
    model: DialClassifier,
    rows: Rows | None = None,
    *,
    tolerance: float | None = None,
    confidence: float | None = None,
    level: float = 0.95,
    audit: str | Path | None = None,
    name: str = "Audit report",
    people: Mapping[Hashable, str] | Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    sees_group: bool | None = None,
) -> Json:
    """Return the facts of an audit report, ready for JSON.

    Parameters
    ----------
    model : DialClassifier
        A calibrated model; one that was loaded has a hash, by which the report can be checked.
    rows : Rows, optional
        Rows that had no part in training or calibration, to measure the decisions on.
    tolerance, confidence : float, optional
        The setting that the report is about. By default the one in effect by the audit log;
        without a log the model's default tolerance.
    level : float
        Confidence of the statements about people in general.
    audit : path, optional
        The audit log of a server: the history of the dial.
    name : str
        The report's title.
    people : mapping, optional
        What to call the members of a group, by its name: ``{"Female": "women"}``.
    labels : (str, str), optional
        What to call the negative and the positive label.
    sees_group : bool, optional
        Whether the scorer knows a row's group; None if that is unknown.

    Returns
    -------
    dict
        ``name``, ``software``, ``model``, ``criterion``, ``setting``, ``calibration``, ``rows``,
        ``certificate``, ``frontier``, ``affected``, ``history``: what
        :func:`fairdial.report.render_report` draws.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.report import Rows, report_data
    >>> old, new = make_gaussian(4_000, random_state=0), make_gaussian(2_000, random_state=1)
    >>> model = FairBayes(LogisticRegression(), tolerance=0.05, random_state=0)
    >>> model = model.fit(old.X, old.y, sensitive_features=old.groups)
    >>> facts = report_data(model, Rows(new.X, new.y, new.groups))
    >>> facts["setting"]["tolerance"], facts["rows"]["verdict"]
    (0.05, 'undecided')
    """
    frontier = _frontier_of(model)
    refuse_groupings(frontier, "reported")
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError("name", "be text", given=repr(name))
    level = check_confidence(level)
    history, last = _history(audit)
    used = _setting_in_use(model, last, tolerance, confidence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        point = frontier.at(used.tolerance, confidence=used.confidence)
        unlimited = frontier.at(UNLIMITED)
        shown = tuple(str(label) for label in model.classes_.tolist())
        names = check_label_names((shown[0], shown[1]) if labels is None else labels)
        called = match_people(frontier.groups, people or {})
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": " ".join(name.split()),
            "software": f"fairdial {__version__}",
            "model": _describe_model(model, sees_group),
            "labels": names,
            "groups": [
                {"name": str(json_name(group)), "people": called.get(group)}
                for group in frontier.groups
            ],
            "criterion": describe_criterion(frontier, names),
            "objective": frontier.objective.title,
            "budget": None
            if frontier.problem.budget is None
            else {
                "share": frontier.problem.budget.share,
                "exact": frontier.problem.budget.exact,
            },
            "lottery": frontier.problem.randomize is not None,
            "nested": frontier.nested or frontier.is_family,
            "calibration": _calibration(frontier),
            "setting": _describe_setting(used, point, unlimited, frontier),
            "rows": None if rows is None else measure_rows(model, rows, used, level),
            "certificate": _certificate(frontier, point, used, level),
            "frontier": _frontier(frontier, used.tolerance),
            "affected": _affected(unlimited, point),
            "history": history,
        }


def _frontier_of(model: DialClassifier) -> Frontier:
    """Return the frontier of a calibrated model of two classes."""
    frontier = getattr(model, "frontier_", None)
    if not isinstance(frontier, Frontier):
        raise InvalidInputError(
            "model", "be a calibrated classifier of two classes", given=type(model).__name__
        )
    if frontier.classes is not None:
        refuse_prices(frontier, "audited in a report")
    return frontier


def _setting_in_use(
    model: DialClassifier, last: Json | None, tolerance: float | None, confidence: float | None
) -> InUse:
    """Return what was asked for, else what the log says, else the model's default."""
    if tolerance is None and confidence is not None:
        raise InvalidInputError("confidence", "be given with `tolerance`")
    if tolerance is not None:
        level = None if confidence is None else check_confidence(confidence)
        return InUse(check_one_tolerance(tolerance), level, "given")
    if last is not None:
        return InUse(last["new"]["tolerance"], last["new"]["confidence"], "log")
    return InUse(float(model.default_tolerance), None, "default")


def _history(audit: str | Path | None) -> tuple[Json | None, Json | None]:
    """Return the audit log, oldest entry first, and its last entry."""
    if audit is None:
        return None, None
    log = AuditLog(audit, write=False)
    try:
        entries = [entry.to_dict() for entry in log.entries(MOST_ENTRIES)]
        altered = log.altered()
    finally:
        log.close()
    if altered is not None:
        raise InvalidInputError(
            "audit",
            "be an audit log as the server wrote it",
            given=f"{log.store.place!r}, whose entry {altered} was altered",
            hint="Report from a copy that was not altered, or find out who changed it.",
        )
    if not entries:
        raise InvalidInputError(
            "audit", "have entries", given=f"{log.store.place!r}, which has none"
        )
    total = int(str(entries[0]["version"]))
    history = {
        "file": log.store.place if is_database(audit) else Path(audit).name,
        "total": total,
        "entries": entries[::-1],
        "last_hash": entries[0]["hash"],
    }
    return history, entries[0]


def _describe_model(model: DialClassifier, sees_group: bool | None) -> Json:
    """Return what is known of the model's training and its columns."""
    training: Mapping[str, Any] = getattr(model, "training_", None) or {}
    method = method_of(type(model))
    column = model.sensitive_column
    names = getattr(model, "feature_names_in_", None)
    columns = [] if column is None else column if isinstance(column, (list, tuple)) else [column]
    merged = training.get("merged_groups")
    return {
        "hash": getattr(model, "model_hash_", None),
        "estimator": type(model).__name__,
        "method": None if method is None else method.name,
        "asked": training.get("asked"),
        "chosen": training.get("chosen"),
        "why": training.get("why"),
        "trained": training.get("ended"),
        "training_rows": training.get("rows"),
        "label": getattr(model, "label_name_", None),
        "features": None if names is None else [str(feature) for feature in names],
        "sensitive": [str(column) for column in columns],
        "sees_group": sees_group,
        "blind": bool(getattr(model, "blind", False)),
        "proxies": training.get("proxies"),
        "missing_group": training.get("missing_group"),
        "merged_groups": None if merged is None else merged["name"],
        "positive": str(model.classes_.tolist()[1]),
        "negative": str(model.classes_.tolist()[0]),
    }


def _calibration(frontier: Frontier) -> Json:
    """Return the calibration rows by group."""
    counts, totals = frontier.counts, frontier.counts.sum(axis=0)
    positive = counts[1] / totals if len(counts) == 2 else [None] * len(frontier.groups)
    return {
        "rows": number_of_rows(frontier.counts),
        "weighted": frontier.certificate == "weighted",
        "strata": frontier.criterion.n_strata,
        "labeled": frontier.has_labels,
        "groups": [
            {"rows": number(n), "eligible": number(m), "positive": number(share)}
            for n, m, share in zip(totals, frontier.eligible, positive, strict=True)
        ],
    }


def describe_point(point: Point) -> Json:
    """Return what a point does on the calibration rows, by demand and by group."""
    rates = point.rates.reshape(len(point.criterion.demands), -1)
    of_label = point.true_positive_rate, point.false_positive_rate
    return {
        "tolerance": point.tolerance,
        "gap": number(point.gap),
        "feasible": bool(point.feasible),
        "accuracy": number(point.accuracy),
        "value": number(point.value),
        "demands": [
            {"name": name, "gap": number(gap), "rates": [number(rate) for rate in line]}
            for (name, gap), line in zip(point.gaps.items(), rates, strict=True)
        ],
        "groups": [
            {
                "rows": number(n),
                "selected": number(chosen),
                "true_positive_rate": None if of_label[0] is None else number(of_label[0][a]),
                "false_positive_rate": None if of_label[1] is None else number(of_label[1][a]),
                "threshold": number(point.thresholds[a]) if point.has_thresholds else None,
            }
            for a, (n, chosen) in enumerate(
                zip(point.counts.sum(axis=0), point.selected.sum(axis=0), strict=True)
            )
        ],
    }


def _describe_setting(used: InUse, point: Point, unlimited: Point, frontier: Frontier) -> Json:
    return {
        "tolerance": used.tolerance,
        "confidence": used.confidence,
        "source": used.source,
        "kind": "family" if frontier.is_family else "blind" if frontier.is_blind else "thresholds",
        "here": describe_point(point),
        "unlimited": describe_point(unlimited),
    }


def _certificate(frontier: Frontier, point: Point, used: InUse, level: float) -> Json:
    """Return what the calibration rows prove about people in general."""
    found: Json = {"level": level, "kind": "none", "any": None, "offer": None, "refused": None}
    if len(frontier.groups) == 1:
        return found | {"kind": "one group"}
    if used.confidence is not None:
        return found | {
            "kind": "certified",
            "level": used.confidence,
            "bound": number(point.certified_gap),
            "theorem": point.theorem,
            "declared": not point.simultaneous and point.theorem in (1, 5),
        }
    if not frontier.can_certify:
        reasons = {"none": "seen", "weighted": "weighted"}
        other = "lottery" if frontier.problem.randomize is not None else "demand"
        return found | {"reason": reasons.get(frontier.certificate, other)}
    if not frontier.is_family and point.feasible:
        try:
            most = point.gap + frontier.margin(level)
            found["any"] = number(most) if most < 1 else None
        except CannotCertifyError:
            pass  # no bound for all thresholds at once
    try:
        offer = frontier.at(used.tolerance, confidence=level)
    except CannotCertifyError as error:
        group = None if error.group is None else str(json_name(error.group))
        found["refused"] = {
            "smallest": number(error.smallest_tolerance),
            "group": group,
            "group_rows": number(error.group_rows),
            "rows_needed": number(error.rows_needed),
        }
        return found | {"kind": "refused"}
    declared = not offer.simultaneous and offer.theorem in (1, 5)
    found["offer"] = describe_point(offer) | {
        "bound": number(offer.certified_gap),
        "theorem": offer.theorem,
        "declared": declared,
    }
    return found | {"kind": "offered"}


def _frontier(frontier: Frontier, tolerance: float) -> Json:
    """Return operating points at round tolerances, and the points of a chart."""
    largest = min(number(frontier.at(UNLIMITED).gap) or 0.0, 1.0)
    slow = isinstance(frontier.points, SearchedPoints) or frontier.is_blind
    steps = SEARCHED_CURVE if slow else CURVE
    table = sorted({t for t in ROUND if t < largest} | {tolerance, max(largest, tolerance)})
    curve = sorted({largest * i / steps for i in range(steps + 1)} | set(table))
    points = dict(zip(curve, _points_at(frontier, curve), strict=True))
    return {
        "points": None if slow and not frontier.is_family else len(frontier),
        "table": [_line(points[t]) for t in table],
        "curve": [
            {"tolerance": t, "accuracy": number(point.accuracy), "gap": number(point.gap)}
            for t, point in points.items()
            if point.feasible
        ],
    }


def _points_at(frontier: Frontier, tolerances: Iterable[float]) -> list[Point]:
    return list(frontier.at(list(tolerances)))


def _line(point: Point) -> Json:
    return {
        "tolerance": point.tolerance,
        "gap": number(point.gap),
        "feasible": bool(point.feasible),
        "accuracy": number(point.accuracy),
        "selected": [number(rate) for rate in point.selection_rate],
    }


def _affected(before: Point, after: Point) -> list[Json]:
    """Return how many calibration rows of each group gain and lose the positive decision.

    A group has one threshold, so the difference of two counts is the number of changed decisions.
    Where a model, a lottery or prices decide, only the balance is known.
    """
    one_way = after.has_thresholds and after.lottery is None
    lines = []
    for balance in map(number, (after.selected - before.selected).sum(axis=0)):
        assert balance is not None
        gained, lost = (max(balance, 0), max(-balance, 0)) if one_way else (None, None)
        lines.append({"balance": balance, "gained": gained, "lost": lost})
    return lines
