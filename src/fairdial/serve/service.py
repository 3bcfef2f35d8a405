"""What the server does, apart from HTTP: requests in, answers out as bytes or JSON data.

Every answer says which tolerance, confidence and version of the dial, and which model, it used. The
dial is read from the audit log for every request, so no process answers with an old one.

*Which guarantee a decision has.* The certificate of the dial's own tolerance is the one for a
tolerance that was chosen without looking at the calibration rows. Recording it before anybody is
decided on by it isn't enough for that, and the server can't check it: who chooses a tolerance by
its figures, such as those on the page, needs the bound for all tolerances at once
(``simultaneous=True``). Any other tolerance is the caller's choice, and there may be many, so its
certificate is the one that holds for all tolerances at once. A row's decision thus depends on the
row, its tolerance and the dial, not on the other rows of the request.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from fairdial._arrays import Codes, Floats, Indices, Mask
from fairdial.core.decide import select
from fairdial.core.frontier import MAX_ROW_TOLERANCES
from fairdial.core.point import Point
from fairdial.errors import CannotCertifyError
from fairdial.serve.answers import number_json, point_data
from fairdial.serve.audit import AuditLog
from fairdial.serve.deciding import Decider
from fairdial.serve.entries import SERVER, AuditError, Entry
from fairdial.serve.metrics import Metrics
from fairdial.serve.monitor import Monitor
from fairdial.serve.observations import Observations, ObservedError
from fairdial.serve.requests import (
    MOST_ROWS,
    DialRequest,
    ObserveRequest,
    PredictRequest,
    RefusedError,
    parse,
)

Found = TypeVar("Found")

NO_NAME = "unnamed"
FAST = 0.005  # seconds: slower predictions leave the event loop
SMOOTHING = 0.1  # weight of the last request in the typical duration


@dataclass(frozen=True)
class Dial:
    """The dial at one time.

    Attributes
    ----------
    tolerance, confidence : float, float or None
        What is in effect.
    entry : Entry or None
        The entry of the audit log that says so; None without a log.
    """

    tolerance: float
    confidence: float | None
    entry: Entry | None

    @property
    def version(self) -> int:
        """Number of changes so far; 0 without a log."""
        return 0 if self.entry is None else self.entry.version


class Service:
    """One model, its dial, and the rows observed.

    Parameters
    ----------
    decider : Decider
        The model.
    model : str
        The model's hash.
    log : AuditLog or None
        The dial's log; without one, ``tolerance`` is always in effect.
    observations : Observations
        Counts of unlabeled rows.
    tolerance : float
        The tolerance in effect without a log.
    confidence : float, optional
        The lowest confidence that every change must be certified with.
    """

    def __init__(
        self,
        decider: Decider,
        *,
        model: str,
        log: AuditLog | None,
        observations: Observations,
        tolerance: float,
        confidence: float | None = None,
    ) -> None:
        self.decider, self.model, self.log = decider, model, log
        self.monitor = Monitor(decider, observations)
        self._tolerance, self.least_confidence = tolerance, confidence
        self.metrics = Metrics(self._gauges)
        self._labels = [json.dumps(label) for label in decider.labels]
        self._label_names = [str(label) for label in decider.labels]
        self._cached: tuple[tuple[float, float | None], Point, str] | None = None
        # typical seconds for about 2^k rows; unknown before the first request
        self._durations = dict.fromkeys(range(MOST_ROWS.bit_length() + 1), math.inf)

    def close(self) -> None:
        """Close the files."""
        self.monitor.observations.close()
        if self.log is not None:
            self.log.close()

    # ---- the dial ------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether reading the dial waits for another machine."""
        return self.log is not None and self.log.store.remote

    def ready(self) -> dict[str, object]:
        """Return what this server would decide with; raise AuditError if it can't decide."""
        dial = self.current_dial()
        self._point(dial)
        return {"status": "ready", "version": dial.version, "model": self.model}

    def current_dial(self) -> Dial:
        """Return the dial as it is now."""
        if self.log is None:
            return Dial(self._tolerance, self.least_confidence, None)
        entry = self.log.last()
        if entry is None:
            raise AuditError("the audit log is empty")
        return self._dial_after(entry)

    def _dial_after(self, entry: Entry) -> Dial:
        levels = [c for c in (entry.confidence, self.least_confidence) if c is not None]
        return Dial(entry.tolerance, max(levels, default=None), entry)

    def describe_dial(self, written: Entry | None = None) -> dict[str, object]:
        """Return the dial with its figures, now or just after an entry was written."""
        dial = self.current_dial() if written is None else self._dial_after(written)
        entry, (point, _) = dial.entry, self._point(dial)
        frontier = self.decider.frontier
        budget = frontier.problem.budget
        return {
            **point_data(point, is_family=not self.decider.swept),
            "confidence": dial.confidence,
            "version": dial.version,
            "writable": self.log is not None and self.log.writable,
            "reason": "the model's default tolerance" if entry is None else entry.reason,
            "who": SERVER if entry is None else entry.who,
            "time": None if entry is None else entry.time,
            "groups": list(self.decider.groups),
            "criterion": frontier.criterion.name,
            "budget": None if budget is None else {"share": budget.share, "exact": budget.exact},
            "nested": frontier.nested or frontier.is_family,
            "selected": point.selected.tolist(),
            "least_confidence": self.least_confidence,
            "model": self.model,
        }

    def _point(self, dial: Dial) -> tuple[Point, str]:
        """Return the dial's point and its JSON; the last one is cached."""
        key, cached = (dial.tolerance, dial.confidence), self._cached
        if cached is None or cached[0] != key:
            try:
                point = self.decider.points.at(*key)
            except CannotCertifyError as error:  # the log was written for another model
                raise AuditError("this model can't certify the dial's tolerance") from error
            cached = self._cached = key, point, self._point_json(point)
        return cached[1], cached[2]

    def _point_json(self, point: Point) -> str:
        return json.dumps(point_data(point, is_family=not self.decider.swept))

    def move_dial(
        self,
        body: bytes,
        seen: int | None,
        name: str | None = None,
        names: Collection[str] = (),
    ) -> Entry:
        """Change the dial; when this returns, the change is recorded and in effect.

        ``name`` is whose token the request has, if the token has a name; only the tokens of
        ``names`` may change the dial in these names.
        """
        request = parse(DialRequest, body, once=True)
        own = {other.casefold() for other in names}
        if name is None and request.by is not None and request.by.casefold() in own:
            raise RefusedError(422, "`by` must not be the name of somebody with a token.")
        if name is not None and request.by not in (None, name):
            raise RefusedError(422, "`by` must be left out, or be the name of the token's owner.")
        if request.by is not None and request.by.casefold() == SERVER:
            raise RefusedError(422, f"`by` must be a person's name, got the reserved {SERVER!r}.")
        least, confidence = self.least_confidence, request.confidence
        if "confidence" not in request.model_fields_set:
            confidence = least
        if least is not None and (confidence is None or confidence < least):
            raise RefusedError(
                422, f"`confidence` must be at least {least:g} on this server, or left out."
            )
        point = _certified(lambda: self.decider.points.at(request.tolerance, confidence))
        if self.log is None:
            raise AuditError("there is no audit log")
        return self.log.append(
            tolerance=request.tolerance,
            confidence=confidence,
            who=name or request.by or NO_NAME,
            reason=request.reason,
            model=self.model,
            gap=point.gap,
            seen=seen,
        )

    def audit(self, limit: int, before: int | None) -> dict[str, object]:
        """Return entries of the log, newest first, and whether any entry was altered."""
        if self.log is None:
            return {"entries": [], "altered": None}
        found = self.log.entries(limit, before)
        return {"entries": [entry.to_dict() for entry in found], "altered": self.log.altered()}

    # ---- decisions -----------------------------------------------------------------------------

    def is_fast(self, request: PredictRequest, dial: Dial) -> bool:
        """Return whether a prediction is fast enough to stay in the event loop.

        It is if it needs no new point of the frontier, and about as many rows were fast before.
        """
        cached = self._cached
        return (
            self._durations[len(request.rows).bit_length()] <= FAST
            and cached is not None
            and cached[0] == (dial.tolerance, dial.confidence)
            and request.tolerance is None
            and not any(row.get("tolerance") is not None for row in request.rows)
        )

    def predict(self, request: PredictRequest, dial: Dial) -> bytes:
        """Return decisions as JSON."""
        start = time.thread_time()  # excludes the time that other threads take
        features = [row["features"] for row in request.rows]
        codes = self.decider.codes([row.get("group") for row in request.rows], features)
        rows = self.decider.rows(features)
        default = dial.tolerance if request.tolerance is None else request.tolerance
        given = [row.get("tolerance") for row in request.rows]
        tolerances = [default if tolerance is None else tolerance for tolerance in given]
        text, points, places = self._points(tolerances, dial)
        margins = self.decider.margins(rows, codes, points, places)
        selected = select(margins, 0.0)
        self._time(len(codes), time.thread_time() - start)
        self._count(codes, selected)
        return (
            f'{{"rows":[{self._row_json(margins, selected, tolerances)}],"positions":[{text}],'
            f'"confidence":{number_json(dial.confidence)},"version":{dial.version},'
            f'"model":"{self.model}"}}'
        ).encode()

    def _time(self, n_rows: int, seconds: float) -> None:
        size = n_rows.bit_length()
        usual = self._durations[size]
        change = SMOOTHING * (seconds - usual)
        self._durations[size] = seconds if math.isinf(usual) else usual + change

    def _row_json(self, margins: Floats, selected: Mask, tolerances: Sequence[float]) -> str:
        labels = self._labels
        shown = map(repr if np.isfinite(margins).all() else number_json, margins.tolist())
        return ",".join(
            [  # faster than json.dumps
                f'{{"decision":{labels[label]},"margin":{margin},"tolerance":{tolerance!r}}}'
                for label, margin, tolerance in zip(
                    selected.tolist(), shown, tolerances, strict=True
                )
            ]
        )

    def _points(self, tolerances: Sequence[float], dial: Dial) -> tuple[str, list[Point], Indices]:
        """Return the points of tolerances, as JSON and as a list, and each row's place in it."""
        own, text = self._point(dial)
        if all(tolerance == dial.tolerance for tolerance in tolerances):
            return text, [own], np.zeros(len(tolerances), np.intp)
        distinct, places = np.unique(np.array(tolerances, np.float64), return_inverse=True)
        others = distinct[distinct != dial.tolerance]
        if dial.confidence is not None and len(others) and not self.decider.frontier.mixes:
            raise RefusedError(  # rows of other requests are decided on at the dial's tolerance
                422,
                "`tolerance` must be left out, or be the dial's: with confidence, rows with "
                "different tolerances may have a larger gap than each tolerance allows.",
            )
        if len(others) > MAX_ROW_TOLERANCES and self.decider.searches:
            raise RefusedError(
                422,
                f"`tolerance` must have at most {MAX_ROW_TOLERANCES} distinct values in one "
                "request: this model searches for each.",
            )
        found = _certified(lambda: self.decider.points.many(others, dial.confidence))
        points = list(found)
        if len(others) < len(distinct):
            points.insert(int(np.searchsorted(others, dial.tolerance)), own)
        return ",".join(map(self._point_json, points)), points, places

    def _count(self, codes: Codes, selected: Mask) -> None:
        groups, labels = self.decider.groups, self._label_names
        if len(codes) == 1:
            self.metrics.decisions(groups[codes[0]], labels[int(selected[0])], 1)
            return
        counts = np.bincount(codes * 2 + selected, minlength=2 * len(groups)).tolist()
        for cell, count in enumerate(counts):
            if count:
                self.metrics.decisions(groups[cell // 2], labels[cell % 2], count)

    # ---- observations --------------------------------------------------------------------------

    def observe(self, body: bytes) -> dict[str, object]:
        """Count unlabeled rows, and return all observations."""
        request, dial = parse(ObserveRequest, body), self.current_dial()
        self.monitor.add(request, self._point(dial)[0], dial.version)
        return self._observed_after("the rows were counted")

    def reset_observations(self) -> dict[str, object]:
        """Set all counts to zero."""
        self.monitor.observations.clear()
        return self._observed_after("the counts were reset")

    def _observed_after(self, done: str) -> dict[str, object]:
        """Return the observations after a change that can't be undone."""
        try:
            return self.observed()
        except (AuditError, ObservedError) as error:
            raise RefusedError(
                503, f"{done}, but the observations can't be read at the moment."
            ) from error

    def observed(self) -> dict[str, object]:
        """Return the observations at the current dial."""
        dial = self.current_dial()
        return {
            **self.monitor.report(dial.tolerance, dial.confidence, dial.version),
            "tolerance": dial.tolerance,
            "confidence": dial.confidence,
            "version": dial.version,
            "model": self.model,
        }

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        """Return what the files say; counters are there even if a file can't be read."""
        try:
            found = list(self._read_gauges())
        except (AuditError, ObservedError):
            found = []
        text = "Whether the dial and the observations can be read."
        yield GaugeMetricFamily("fairdial_files_readable", text, value=float(bool(found)))
        yield from found

    def _read_gauges(self) -> Iterator[GaugeMetricFamily]:
        dial = self.current_dial()
        for name, text, value in (
            ("fairdial_dial_tolerance", "The dial's tolerance.", dial.tolerance),
            ("fairdial_dial_version", "Changes to the dial.", dial.version),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from self.monitor.gauges(dial.tolerance, dial.version)


def _certified(find: Callable[[], Found]) -> Found:
    try:
        return find()
    except CannotCertifyError as error:
        able = "there is none"
        if error.smallest_tolerance is not None:
            able = f"the smallest is {error.smallest_tolerance:.4f}"
        if error.group_rows is not None:
            able += f", because group {error.group!r} has only {error.group_rows:,}"
        more = "" if error.enough is None else f". For this one, {error.enough}"
        raise RefusedError(
            422, f"`tolerance` must be one that the calibration rows certify; {able}{more}."
        ) from error
