"""What the server does, apart from HTTP: requests in as bytes, answers out as bytes or plain data.

Every answer says where the dial stood: its tolerance, confidence and version, and the model's hash.
The dial is read from the audit log for every request, so that no process answers with an old one.

*Which statement a decision has.* The dial's tolerance was recorded before anybody was decided on by
it, so its position is the one for a tolerance that was decided on beforehand. Any other tolerance
is whatever a caller likes, and there may be many: its position is the one whose statement holds for
the whole dial at once. So a row's decision depends on the row, its tolerance and the dial, and on
nothing else that the request says.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from fairdial.confidence import gap_interval
from fairdial.errors import CannotCertifyError
from fairdial.points import Point
from fairdial.serve import drift
from fairdial.serve.audit import SERVER, AuditError, AuditLog, Entry
from fairdial.serve.deciding import Decider, Positions
from fairdial.serve.metrics import Gauge, Metrics
from fairdial.serve.observed import Observations, Observed, ObservedError
from fairdial.serve.schema import (
    MOST_ROWS,
    DialRequest,
    ObserveRequest,
    PredictRequest,
    say_problem,
)

Asked = TypeVar("Asked", bound=BaseModel)

FEWEST = 30  # observed rows of each group before thresholds are proposed
SOMEBODY = "unnamed"
SHOWN = 5  # problems of a request
MOMENT = 0.005  # seconds: what takes longer is done beside the loop
LATEST = 0.1  # weight of the latest request in the pace of late


class RefusedError(Exception):
    """A request that can't be answered as it is; the message may be told."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Standing:
    """Where the dial stands now.

    Attributes
    ----------
    tolerance, confidence : float, float or None
        The wish, and the confidence with which it is kept.
    entry : Entry or None
        The move that put it there; None: the model's own tolerance, and no log.
    """

    tolerance: float
    confidence: float | None
    entry: Entry | None

    @property
    def version(self) -> int:
        """Counts the moves; 0: there was none."""
        return 0 if self.entry is None else self.entry.version


class Service:
    """One model, its dial, and what was observed.

    Parameters
    ----------
    decider : Decider
        The model.
    model : str
        Its hash.
    log : AuditLog or None
        Where the dial stands; None: at ``tolerance``.
    observations : Observations
        Counts of unlabelled rows.
    tolerance : float
        Where the dial stands without a log.
    confidence : float, optional
        The least confidence of every position.
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
        self.observations = observations
        self._tolerance, self.least_confidence = tolerance, confidence
        self.metrics = Metrics(self._gauges)
        self._labels = [json.dumps(label) for label in decider.labels]
        self._label_names = [str(label) for label in decider.labels]
        self._calibration = drift.calibration_bins(decider.frontier)
        self._dialled: tuple[tuple[float, float | None], Point, str] | None = None
        # seconds that about 2^k rows took of late; nobody knows before the first request
        self._paces = dict.fromkeys(range(MOST_ROWS.bit_length() + 1), math.inf)

    def close(self) -> None:
        """Give the files back."""
        self.observations.close()
        if self.log is not None:
            self.log.close()

    # ---- the dial ------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Where the dial stands now."""
        if self.log is None:
            return Standing(self._tolerance, self.least_confidence, None)
        entry = self.log.last()
        if entry is None:
            raise AuditError("the audit log is empty")
        return self._standing_of(entry)

    def _stricter(self, confidence: float | None) -> float | None:
        wishes = [c for c in (confidence, self.least_confidence) if c is not None]
        return max(wishes) if wishes else None

    def _standing_of(self, entry: Entry) -> Standing:
        return Standing(entry.tolerance, self._stricter(entry.confidence), entry)

    def dial(self, written: Entry | None = None) -> dict[str, Any]:
        """Where the dial stands, with its figures; or where a move has just put it."""
        standing = self.standing() if written is None else self._standing_of(written)
        entry, (point, _) = standing.entry, self._point(standing)
        return {
            **_position(point, self.decider.swept),
            "confidence": standing.confidence,
            "version": standing.version,
            "writable": self.log is not None and self.log.writable,
            "reason": "the model's own tolerance" if entry is None else entry.reason,
            "who": SERVER if entry is None else entry.who,
            "time": None if entry is None else entry.time,
            "groups": list(self.decider.groups),
            "selected": point.selected.tolist(),
            "least_confidence": self.least_confidence,
            "model": self.model,
        }

    def _point(self, standing: Standing) -> tuple[Point, str]:
        """The dial's own position, and its JSON; the last one is kept, being asked for most."""
        key, known = (standing.tolerance, standing.confidence), self._dialled
        if known is None or known[0] != key:
            try:
                point = self.decider.positions.at(*key)
            except CannotCertifyError as error:  # the log was written for another model
                raise AuditError("the dial stands where this model can promise nothing") from error
            known = self._dialled = key, point, self._told(point)
        return known[1], known[2]

    def _told(self, point: Point) -> str:
        return json.dumps(_position(point, self.decider.swept))

    def move(self, body: bytes, seen: int | None) -> Entry:
        """Move the dial; when this returns, the move is recorded and in effect."""
        wish = parse(DialRequest, body)
        if wish.by is not None and wish.by.casefold() == SERVER:
            raise RefusedError(422, f"`by` must be somebody's name, got {SERVER!r}, the server's.")
        confidence = wish.confidence
        if "confidence" not in wish.model_fields_set:
            confidence = self.least_confidence
        least = self.least_confidence
        if least is not None and (confidence is None or confidence < least):
            raise RefusedError(
                422,
                f"`confidence` must be at least {least:g}, as this server was started, or left "
                "out.",
            )
        point = self._certified(lambda: self.decider.positions.at(wish.tolerance, confidence))
        if self.log is None:
            raise AuditError("there is no audit log")
        return self.log.append(
            tolerance=wish.tolerance,
            confidence=confidence,
            who=wish.by or SOMEBODY,
            reason=wish.reason,
            model=self.model,
            gap=point.gap,
            seen=seen,
        )

    def audit(self, limit: int, before: int | None) -> dict[str, Any]:
        """Moves of the dial, the last one first, and whether the whole log is as it was written."""
        if self.log is None:
            return {"entries": [], "altered": None}
        found = self.log.entries(limit, before)
        return {"entries": [entry.to_dict() for entry in found], "altered": self.log.altered()}

    # ---- decisions -----------------------------------------------------------------------------

    def takes_a_moment(self, asked: PredictRequest, standing: Standing) -> bool:
        """Whether decisions come so fast that nobody need wait beside the loop for them.

        About so many rows took this model no longer of late, and no position that isn't known.
        """
        known = self._dialled
        return (
            self._paces[len(asked.rows).bit_length()] <= MOMENT
            and known is not None
            and known[0] == (standing.tolerance, standing.confidence)
            and asked.tolerance is None
            and not any(row.get("tolerance") is not None for row in asked.rows)
        )

    def predict(self, asked: PredictRequest, standing: Standing) -> bytes:
        """Decisions for rows."""
        start = time.thread_time()  # not what others take meanwhile
        features = [row["features"] for row in asked.rows]
        codes = self.decider.codes([row.get("group") for row in asked.rows], features)
        rows = self.decider.rows(features)
        usual = standing.tolerance if asked.tolerance is None else asked.tolerance
        own = [row.get("tolerance") for row in asked.rows]
        wishes = [usual if wish is None else wish for wish in own]
        told, points, places = self._positions(wishes, standing)
        margins = self.decider.margins(rows, codes, points, places)
        seconds, size = time.thread_time() - start, len(codes).bit_length()
        known = self._paces[size]
        self._paces[size] = seconds if math.isinf(known) else known + LATEST * (seconds - known)
        self._count(codes, margins > 0)
        return (
            f'{{"rows":[{self._lines(margins, wishes)}],"positions":[{told}],'
            f'"confidence":{_number(standing.confidence)},"version":{standing.version},'
            f'"model":"{self.model}"}}'
        ).encode()

    def _lines(self, margins: NDArray[np.float64], wishes: Sequence[float]) -> str:
        """Decisions as JSON; going through the rows in any other way takes longer."""
        labels = self._labels
        shown = map(repr if np.isfinite(margins).all() else _number, margins.tolist())
        return ",".join(
            [
                f'{{"decision":{labels[selected]},"margin":{margin},"tolerance":{wish!r}}}'
                for selected, margin, wish in zip(
                    (margins > 0).tolist(), shown, wishes, strict=True
                )
            ]
        )

    def _positions(
        self, wishes: Sequence[float], standing: Standing
    ) -> tuple[str, list[Point], NDArray[np.intp]]:
        """Positions for tolerances as JSON, the positions, and each row's place among them."""
        own, told = self._point(standing)
        if all(wish == standing.tolerance for wish in wishes):
            return told, [own], np.zeros(len(wishes), np.intp)
        distinct, places = np.unique(np.array(wishes, np.float64), return_inverse=True)
        others = distinct[distinct != standing.tolerance]
        found = self._certified(lambda: self.decider.positions.many(others, standing.confidence))
        points = list(found)
        if len(others) < len(distinct):
            points.insert(int(np.searchsorted(others, standing.tolerance)), own)
        return ",".join(map(self._told, points)), points, places

    @staticmethod
    def _certified(find: Any) -> Any:
        try:
            return find()
        except CannotCertifyError as error:
            raise RefusedError(422, _unpromised(error)) from error

    def _count(self, codes: NDArray[Any], selected: NDArray[np.bool_]) -> None:
        groups, labels = self.decider.groups, self._label_names
        if len(codes) == 1:
            self.metrics.decisions(groups[codes[0]], labels[int(selected[0])], 1)
            return
        counts = np.bincount(codes * 2 + selected, minlength=2 * len(groups)).tolist()
        for cell, count in enumerate(counts):
            if count:
                self.metrics.decisions(groups[cell // 2], labels[cell % 2], count)

    # ---- observations --------------------------------------------------------------------------

    def observe(self, body: bytes) -> dict[str, Any]:
        """Count unlabelled rows, and tell what was observed so far."""
        asked, standing = parse(ObserveRequest, body), self.standing()
        if (asked.scores is None) == (asked.rows is None):
            raise RefusedError(422, "either `scores` (with `groups`) or `rows` must be given.")
        n_groups, bins = len(self.decider.groups), None
        point, _ = self._point(standing)
        if asked.scores is not None:
            if not self.decider.swept:
                raise RefusedError(
                    422, "`scores` must be left out for a family of models; give `rows`."
                )
            if asked.groups is None and n_groups > 1:
                raise RefusedError(422, "`groups` must be given beside `scores`, got none.")
            groups = [None] * len(asked.scores) if asked.groups is None else asked.groups
            if len(groups) != len(asked.scores):
                raise RefusedError(422, "`scores` and `groups` must describe the same rows.")
            codes = self.decider.codes(groups)
            scores = np.array(asked.scores, np.float64)
            chosen = scores > point.thresholds[codes]
        else:
            assert asked.rows is not None
            if asked.groups is not None:
                raise RefusedError(422, "`groups` must be left out: `rows` have each their group.")
            features = [row.features for row in asked.rows]
            codes = self.decider.codes([row.group for row in asked.rows], features)
            rows = self.decider.rows(features)
            if self.decider.swept:
                scores = self.decider.scores(rows, codes)
                chosen = scores > point.thresholds[codes]
            else:
                scores = None
                here = np.zeros(len(codes), np.intp)
                chosen = self.decider.margins(rows, codes, [point], here) > 0
        if scores is not None:
            bins = drift.bin_scores(scores, codes, n_groups)
        self.observations.add(
            np.bincount(codes, minlength=n_groups),
            np.bincount(codes[chosen], minlength=n_groups),
            standing.version,
            bins,
            None if self._calibration is None else self._look,
        )
        return self._observed_after("the rows were counted")

    def forget(self) -> dict[str, Any]:
        """Start counting anew."""
        self.observations.clear()
        return self._observed_after("counting was started anew")

    def _observed_after(self, done: str) -> dict[str, Any]:
        """What was observed so far, after something that can't be taken back."""
        try:
            return self.observed()
        except (AuditError, ObservedError) as error:
            raise RefusedError(
                503, f"{done}, but what was observed so far can't be read at the moment."
            ) from error

    def _look(self, place: int, bins: drift.Counts) -> drift.Look:
        assert self._calibration is not None
        return drift.look(bins, self._calibration[place], len(self.decider.groups))

    def observed(self) -> dict[str, Any]:
        """What was observed so far, at where the dial stands now."""
        standing = self.standing()
        found = self.observations.read(standing.version)
        low, high = drift.rate_intervals(found.selected, found.current, drift.LEVEL)
        notes: list[str] = []
        return {
            "since": found.since,
            "groups": [
                {
                    "group": name,
                    "rows": int(found.rows[a]),
                    "rows_at_dial": int(found.current[a]),
                    "selected": int(found.selected[a]),
                    "rate": _share(found.selected[a], found.current[a]),
                    "low": float(low[a]),
                    "high": float(high[a]),
                    "look": _look(found.looks[a]),
                    "drift": bool(found.drift[a]),
                }
                for a, name in enumerate(self.decider.groups)
            ],
            "gap": self._gap(found, notes),
            "drift": self._drift(found, notes),
            "proposal": self._proposal(found, standing, notes),
            "notes": notes,
            "tolerance": standing.tolerance,
            "confidence": standing.confidence,
            "version": standing.version,
            "model": self.model,
        }

    @property
    def _selection(self) -> bool:
        """Whether the criterion compares selection rates, which need no labels."""
        return self.decider.frontier.criterion.rates[0].counted is None

    def _gap(self, found: Observed, notes: list[str]) -> dict[str, float] | None:
        if not self._selection:
            name = self.decider.frontier.criterion.name
            notes.append(f"the gap of {name} can't be told without labels")
            return None
        if len(found.rows) == 1:
            notes.append("one group has no gap")
            return None
        if not found.current.all():
            notes.append("the gap needs rows of every group since the dial was moved")
            return None
        rates = found.selected / found.current
        low, high = gap_interval(found.selected.tolist(), found.current.tolist(), drift.LEVEL)
        gap = float(rates.max() - rates.min())
        return {"gap": gap, "low": low, "high": high, "confidence": drift.LEVEL}

    def _drift(self, found: Observed, notes: list[str]) -> dict[str, Any] | None:
        if self._calibration is None:
            notes.append(
                "drift can't be told: the scores of the calibration rows are not kept, or were "
                "cross-fitted"
                if self.decider.swept
                else "drift can't be told for a family of models, which has no single score"
            )
            return None
        return {"warning": bool(found.drift.any()), "false_alarms": drift.FALSE_ALARMS}

    def _proposal(
        self, found: Observed, standing: Standing, notes: list[str]
    ) -> dict[str, Any] | None:
        if not self.decider.swept:
            notes.append("a family of models has no thresholds to propose")
            return None
        if not self._selection:
            notes.append("thresholds can't be proposed without labels")
            return None
        if found.rows.min() < FEWEST:
            notes.append(f"thresholds are proposed from {FEWEST} rows of every group on")
            return None
        frontier = drift.redial(
            self.observations.bins(), self.decider.frontier.criterion, self.decider.groups
        )
        try:
            point = Positions(frontier).at(standing.tolerance, standing.confidence)
        except CannotCertifyError as error:
            more = "" if error.rows_needed is None else f"; about {error.rows_needed:,} rows would"
            notes.append(
                f"the observed rows can't certify thresholds for the dial's confidence{more}"
            )
            return None
        told = _position(point, swept=True)
        del told["setting"]  # of another frontier than the model's
        return {**told, "confidence": standing.confidence}

    # ---- figures -------------------------------------------------------------------------------

    def _gauges(self) -> Iterator[Gauge]:
        standing = self.standing()
        found = self.observations.read(standing.version)
        by_group = dict(zip(self.decider.groups, found.rows.tolist(), strict=True))
        yield Gauge("fairdial_dial_tolerance", "Where the dial stands.", {"": standing.tolerance})
        yield Gauge("fairdial_dial_version", "Moves of the dial.", {"": standing.version})
        yield Gauge("fairdial_observed_rows", "Observed rows.", by_group, grouped=True)
        gap = self._gap(found, [])
        if gap is not None:
            yield Gauge("fairdial_observed_gap", "Gap of observed rates.", {"": gap["gap"]})
            yield Gauge("fairdial_observed_gap_low", "Its lowest value.", {"": gap["low"]})
            yield Gauge("fairdial_observed_gap_high", "Its highest value.", {"": gap["high"]})
        if self._calibration is not None:
            yield Gauge(
                "fairdial_drift_warning",
                "Whether scores have changed since calibration.",
                {"": float(found.drift.any())},
            )


# ---- JSON --------------------------------------------------------------------------------------


def parse(kind: type[Asked], body: bytes) -> Asked:
    """A request's body; what is wrong with it is told without repeating any of it."""
    try:
        data = from_json(body, allow_inf_nan=False)  # parsing and checking apart is faster
    except ValueError:
        raise RefusedError(
            422,
            "the body must be JSON, with points in numbers and without NaN, got something else.",
        ) from None
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        told = [say_problem(p["loc"], p["type"], p["input"]) for p in found[:SHOWN]]
        more = f" (and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
        raise RefusedError(422, f"{'; '.join(told)}{more}.") from None


def _position(point: Point, swept: bool) -> dict[str, Any]:
    names = map(str, point.groups)
    thresholds = map(_extended, point.thresholds.tolist())
    return {
        "tolerance": point.tolerance,
        "setting": _extended(point.setting),
        "gap": point.gap,
        "feasible": point.feasible,
        "certified_gap": point.certified_gap,
        "thresholds": dict(zip(names, thresholds, strict=True)) if swept else None,
    }


def _extended(value: float) -> float | str:
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else f'"{_extended(value)}"'


def _unpromised(error: CannotCertifyError) -> str:
    smallest, rows = error.smallest_tolerance, error.rows_needed
    able = "none" if smallest is None else f"the smallest is {smallest:.4f}"
    more = "" if rows is None else f"; about {rows:,} calibration rows like these would do"
    return f"`tolerance` must be one that the calibration rows can certify, {able}{more}."


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _look(look: drift.Look | None) -> dict[str, float] | None:
    return None if look is None else {"distance": look.distance, "bound": look.bound}
