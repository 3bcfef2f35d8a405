"""Monitoring of observed rows: rates, the gaps of all demands, drift, and proposed thresholds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from fairdial._arrays import Codes, Counts, Floats, Mask
from fairdial.core.anytime import Watch, gap_sequence, rate_sequence
from fairdial.core.decide import select
from fairdial.core.demands import Demand
from fairdial.core.point import Point
from fairdial.errors import CannotCertifyError
from fairdial.serve import drift
from fairdial.serve.answers import point_data
from fairdial.serve.deciding import Decider, PointCache
from fairdial.serve.observations import Observations, Observed
from fairdial.serve.records import shorten
from fairdial.serve.requests import ObservedRow, ObserveRequest, RefusedError

FEWEST = 30  # observed rows of each group before thresholds are proposed


class Monitor:
    """What the observed rows say about a model.

    Parameters
    ----------
    decider : Decider
        The model.
    observations : Observations
        Where rows are counted.
    """

    def __init__(self, decider: Decider, observations: Observations) -> None:
        self.decider, self.observations = decider, observations
        self._calibration = drift.calibration_bins(decider.frontier)
        self._needs_labels = decider.frontier.criterion.needs_labels

    def add(self, request: ObserveRequest, point: Point, version: int) -> None:
        """Count rows, selected at a point that is in effect since a version of the dial."""
        if (request.scores is None) == (request.rows is None):
            raise RefusedError(
                422, "the request must have either `scores` (and `groups`) or `rows`."
            )
        scores: Floats | None
        if request.scores is not None:
            codes, scores = self._from_scores(request.scores, request.groups)
            selected = select(scores, point.thresholds[codes])
        else:
            assert request.rows is not None
            if request.groups is not None:
                raise RefusedError(422, "`groups` must be left out: each of `rows` has its group.")
            if request.labels is not None:
                raise RefusedError(422, "`labels` must be left out: each of `rows` has its label.")
            codes, scores, selected = self._from_rows(request.rows, point)
        given = request.labels
        if request.rows is not None:
            given = [row.label for row in request.rows]
        n_groups = len(self.decider.groups)
        labels = self._label_codes(given, codes)

        def watch(state: str | None) -> str:
            return self._watch(state, point.tolerance, codes, selected, labels)

        self.observations.add(
            np.bincount(codes, minlength=n_groups),
            np.bincount(codes[selected], minlength=n_groups),
            version,
            None if scores is None else drift.bin_scores(scores, codes, n_groups),
            None if self._calibration is None else self._look,
            self._by_label(labels, codes, selected),
            watch if self._watched_demands and n_groups > 1 else None,
        )

    def _label_codes(self, given: Sequence[object] | None, codes: Codes) -> Codes | None:
        """Return 0 or 1 for each row with a label and -1 for others, (n,); None without labels."""
        if given is None or all(label is None for label in given):
            return None
        if len(given) != len(codes):
            raise RefusedError(422, "`scores` and `labels` must have the same length.")
        known = {(type(label), label): code for code, label in enumerate(self.decider.labels)}
        try:
            labels = [-1 if v is None else known[type(v), v] for v in given]
        except (KeyError, TypeError):
            raise RefusedError(
                422, f"`label` must be one of the model's labels, {shorten(self.decider.labels)}."
            ) from None
        return np.array(labels, np.intp)

    def _by_label(
        self, kinds: Codes | None, codes: Codes, selected: Mask
    ) -> tuple[Counts, Counts] | None:
        """Return the rows that have a label, by label and group, and the selected ones."""
        if kinds is None:
            return None
        n_groups = len(self.decider.groups)
        cells = kinds * n_groups + codes
        counts = [
            np.bincount(cells[rows], minlength=2 * n_groups).reshape(2, n_groups)
            for rows in (kinds >= 0, (kinds >= 0) & selected)
        ]
        return counts[0], counts[1]

    @property
    def _watched_demands(self) -> list[Demand]:
        """Differences of rates over all rows, or over rows with a label."""
        demands = self.decider.frontier.criterion.demands
        return [d for d in demands if d.is_certifiable and d.strata is None]

    def _watches(self, state: str | None, tolerance: float) -> list[Watch]:
        demands = self._watched_demands
        if state is not None:
            return [Watch.from_dict(data) for data in json.loads(state)]
        alpha, size = drift.FALSE_ALARMS / max(len(demands), 1), len(self.decider.groups)
        return [Watch(size, min(float(d.scale) * tolerance, 1.0), alpha) for d in demands]

    def _watch(
        self,
        state: str | None,
        tolerance: float,
        codes: Codes,
        selected: Mask,
        labels: Codes | None,
    ) -> str:
        """Return the state of the watch after these rows."""
        watches = self._watches(state, tolerance)
        for demand, watch in zip(self._watched_demands, watches, strict=True):
            if demand.rate.eligible is None:
                watch.update(codes, selected)
            elif labels is not None:
                rows = labels == demand.rate.eligible
                watch.update(codes[rows], selected[rows])
        return json.dumps([watch.to_dict() for watch in watches])

    def _watched(self, found: Observed, tolerance: float) -> dict[str, object]:
        lines = []
        watches = self._watches(found.watch, tolerance) if len(found.rows) > 1 else []
        for demand, watch in zip(self._watched_demands, watches, strict=False):
            lines.append(
                {
                    "demand": demand.name,
                    "rows": watch.rows,
                    "evidence": watch.evidence,
                    "largest": watch.largest,
                    "needed": 1.0 / watch.alpha,
                    "alarm": watch.alarm,
                }
            )
        alarm = any(line["alarm"] is not None for line in lines)
        return {"alarm": alarm, "false_alarms": drift.FALSE_ALARMS, "demands": lines}

    def _from_scores(
        self, scores: Sequence[float], groups: Sequence[object] | None
    ) -> tuple[Codes, Floats]:
        if not self.decider.swept:
            raise RefusedError(
                422, "`scores` must be left out for a family of models; send `rows`."
            )
        if groups is None and len(self.decider.groups) > 1:
            raise RefusedError(422, "`groups` must be given with `scores`, got nothing.")
        names = [None] * len(scores) if groups is None else groups
        if len(names) != len(scores):
            raise RefusedError(422, "`scores` and `groups` must have the same length.")
        return self.decider.codes(names), np.array(scores, np.float64)

    def _from_rows(
        self, rows: Sequence[ObservedRow], point: Point
    ) -> tuple[Codes, Floats | None, Mask]:
        features = [row.features for row in rows]
        codes = self.decider.codes([row.group for row in rows], features)
        table = self.decider.rows(features)
        if self.decider.swept:
            scores = self.decider.scores(table, codes)
            return codes, scores, select(scores, point.thresholds[codes])
        places = np.zeros(len(codes), np.intp)
        return codes, None, select(self.decider.margins(table, codes, [point], places), 0.0)

    def _look(self, group: int, bins: Counts) -> drift.Look:
        assert self._calibration is not None
        return drift.look(bins, self._calibration[group], len(self.decider.groups))

    def report(self, tolerance: float, confidence: float | None, version: int) -> dict[str, object]:
        """Return the observations as JSON data, with notes on what is missing and why."""
        found = self.observations.read(version)
        alpha = (1.0 - drift.LEVEL) / len(found.rows)
        low, high = rate_sequence(found.selected, found.current, alpha)
        notes: list[str] = []
        return {
            "since": found.since,
            "groups": [
                {
                    "group": name,
                    "rows": int(found.rows[a]),
                    "rows_at_dial": int(found.current[a]),
                    "selected": int(found.selected[a]),
                    "rate": float(found.selected[a] / found.current[a])
                    if found.current[a]
                    else None,
                    "low": float(low[a]),
                    "high": float(high[a]),
                    "look": _look_data(found.looks[a]),
                    "drift": bool(found.drift[a]),
                }
                for a, name in enumerate(self.decider.groups)
            ],
            "gap": self._gap(found, notes),
            "demands": self._demands(found),
            "watch": self._watched(found, tolerance),
            "drift": self._drift(found, notes),
            "proposal": self._proposal(found, tolerance, confidence, notes),
            "notes": notes,
        }

    def _gap(self, found: Observed, notes: list[str]) -> dict[str, float] | None:
        criterion = self.decider.frontier.criterion
        if len(found.rows) == 1:
            notes.append("there is no gap with only one group")
            return None
        if not criterion.is_simple or self._needs_labels:
            if not any(line["gap"] is not None for line in self._demands(found)):
                without = "labels of rows" if self._needs_labels else "rows"
                notes.append(
                    f"the gaps of {criterion.name} need {without} of every group since the dial "
                    "last changed"
                )
            if criterion.n_strata > 1:
                notes.append("gaps within strata aren't observed")
            return None
        if not found.current.all():
            notes.append("the gap needs rows of every group since the dial last changed")
            return None
        rates = found.selected / found.current
        low, high = gap_sequence(found.selected.tolist(), found.current.tolist(), drift.LEVEL)
        gap = float(rates.max() - rates.min())
        return {"gap": gap, "low": low, "high": high, "confidence": drift.LEVEL}

    def _demands(self, found: Observed) -> list[dict[str, object]]:
        """Return the observed gap of each demand; null where rows, labels or strata are missing."""
        rows, chosen = found.current[None], found.selected[None]
        lines: list[dict[str, object]] = []
        for demand in self.decider.frontier.criterion.demands:
            line: dict[str, object] = {"demand": demand.name, "gap": None, "rows": 0}
            lines.append(line | {"low": None, "high": None, "confidence": drift.LEVEL})
            if demand.strata is not None:
                continue
            all_rows, selected = rows, chosen
            if demand.rate.needs_labels:
                all_rows, selected = found.labeled, found.labeled_selected
            over, under = demand.parts(selected[None], all_rows[None])
            lines[-1]["rows"] = int(under.sum())
            if not under.all():
                continue
            plain = replace(demand, scale=Fraction(1))
            lines[-1]["gap"] = float(plain.gap_of(selected[None], all_rows[None]))
            if demand.spread == "difference" and demand.rate.fixed and len(under) > 1:
                low, high = gap_sequence(over.tolist(), under.tolist(), drift.LEVEL)
                lines[-1] |= {"low": low, "high": high}
        return lines

    def _drift(self, found: Observed, notes: list[str]) -> dict[str, object] | None:
        if self._calibration is None:
            notes.append(
                "drift can't be detected: the model doesn't store the scores of its calibration "
                "rows, or they were cross-fitted"
                if self.decider.swept
                else "drift can't be detected for a family of models, which has no single score"
            )
            return None
        return {"warning": bool(found.drift.any()), "false_alarms": drift.FALSE_ALARMS}

    def _proposal(
        self, found: Observed, tolerance: float, confidence: float | None, notes: list[str]
    ) -> dict[str, object] | None:
        if not self.decider.swept:
            notes.append("no thresholds are proposed for a family of models, which has none")
            return None
        problem = self.decider.frontier.problem
        if self._needs_labels or not problem.uses_path:
            notes.append(
                "thresholds are proposed only for demographic parity with accuracy as objective, "
                "and without a budget"
            )
            return None
        if found.rows.min() < FEWEST:
            notes.append(f"thresholds are proposed once every group has {FEWEST} rows")
            return None
        frontier = drift.redial(
            self.observations.bins(), self.decider.frontier.criterion, self.decider.groups
        )
        try:
            point = PointCache(frontier).at(tolerance, confidence)
        except CannotCertifyError as error:
            more = "" if error.enough is None else f"; {error.enough}"
            notes.append(f"the observed rows can't certify thresholds at the confidence{more}")
            return None
        proposal = point_data(point, is_family=False)
        for name in ("setting", "objective", "value"):  # they belong to the model's frontier
            del proposal[name]
        return {**proposal, "confidence": confidence}

    def gauges(self, tolerance: float, version: int) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the observations."""
        found = self.observations.read(version)
        rows = GaugeMetricFamily("fairdial_observed_rows", "Observed rows.", labels=["group"])
        for group, count in zip(self.decider.groups, found.rows.tolist(), strict=True):
            rows.add_metric([group], count)
        yield rows
        gap = self._gap(found, [])
        if gap is not None:
            for name, text, value in (
                ("fairdial_observed_gap", "Observed gap.", gap["gap"]),
                ("fairdial_observed_gap_low", "Its lower bound.", gap["low"]),
                ("fairdial_observed_gap_high", "Its upper bound.", gap["high"]),
            ):
                yield GaugeMetricFamily(name, text, value=value)
        evidence = GaugeMetricFamily(
            "fairdial_gap_evidence",
            "Evidence that the gap is above the tolerance.",
            labels=["demand"],
        )
        alarm = GaugeMetricFamily(
            "fairdial_gap_alarm",
            "Whether the evidence ever reached what an alarm needs.",
            labels=["demand"],
        )
        needed = GaugeMetricFamily(
            "fairdial_gap_evidence_needed", "Evidence that raises an alarm.", labels=["demand"]
        )
        watches = self._watches(found.watch, tolerance) if len(found.rows) > 1 else []
        for demand, watch in zip(self._watched_demands, watches, strict=False):
            evidence.add_metric([demand.name], watch.evidence)
            alarm.add_metric([demand.name], float(watch.alarm is not None))
            needed.add_metric([demand.name], 1.0 / watch.alpha)
        yield from (evidence, alarm, needed)
        if self._calibration is not None:
            yield GaugeMetricFamily(
                "fairdial_drift_warning",
                "Whether scores have changed since calibration.",
                value=float(found.drift.any()),
            )


def _look_data(look: drift.Look | None) -> dict[str, float] | None:
    return None if look is None else {"distance": look.distance, "bound": look.bound}
