"""Which training gives the best dial on these rows: tried on validation rows, within a time."""

from __future__ import annotations

import copy
import numbers
import threading
import time
from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from fairdial._validation import check_choice, check_count, check_fraction, check_positive
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError, TrainingWarning, warn
from fairdial.methods.base import groups_by_name
from fairdial.methods.candidates import (
    ORDER_OF_TRYING,
    Deadline,
    check_names,
    find_hindrances,
    make_candidate,
    refuse_impossible,
)
from fairdial.methods.learners import limit_threads
from fairdial.methods.rows import FitRows, Rows, hold_out, take_rows
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.methods.trials import (
    FAILED,
    NOT_TRIED,
    TOLERANCES,
    Trial,
    choose,
    say_error,
    say_notes,
    to_frame,
)
from fairdial.persistence.manifest import Key
from fairdial.scorers import PlattMap, Scorer
from fairdial.sweeping import count_by_group, sweep_codes

Floats = NDArray[np.float64]

TRYING = threading.Lock()  # how many threads BLAS has is one number for the whole process
HANDED_ON = ("frontier_", "platt_", "training_")  # to the chosen estimator, when they change
OWN = ("candidates", "budget", "validation", "random_state")  # settings that it has not, or else


class AutoDial(ThresholdClassifier):
    """The best of several trainings for the dial, by the frontier on validation rows.

    Each candidate is trained on a part of the training rows. On the others, the accuracy that its
    dial delivers is averaged over the tolerances .01, .02, ..., .20, whatever ``tolerance`` is.
    Among the candidates that are not below the best by more than one standard error (paired, row by
    row), the simplest is taken, the first in the order "logistic", "boosting", "blend", "network",
    "gfb", and trained anew on all training rows. Where a candidate's dial doesn't reach a tolerance
    on the validation rows, the same decision for everybody counts instead, the more frequent label.

    The accuracies are for choosing only: dials are found on the rows that they are measured on, and
    the best of several is the luckiest. The errors are those of other rows, not of other trainings.

    Infinite numbers are refused before anything is trained. A candidate that fails is not taken; a
    :class:`~fairdial.TrainingWarning` names it.

    With a whole number for ``random_state`` the choice is always the same, unless the budget ends
    within the trials; BLAS has one thread while candidates are tried, so that its sums don't depend
    on how many there are, and fits in several threads of a process wait for each other's trials.
    Trees of fewer than 100,000 rows are grown by one thread, because several wait for each other
    where cores are busy, for minutes.

    Parameters
    ----------
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    candidates : list of str, optional
        Some of "logistic" (regression on the table's columns as networks see them; networks see
        the group besides), "boosting" (gradient boosting, on the columns too, with trees smaller
        than scikit-learn's default: in our study as good on Adult, and on COMPAS better by about a
        point, not established), "blend" (the logits of logistic regression and of the same trees
        averaged), "network" (three nets) and "gfb". By default all that can be trained on these
        rows: networks need torch, "gfb" two groups; trees are not tried from 256 columns of
        numbers on. ``why_`` and ``trials_`` name those that are left out.
    budget : float
        Seconds for trying; the final training comes on top, and has no limit of time. Candidates
        are tried in the given order, by default "boosting", "logistic", "blend", "network", "gfb",
        until the time is over; the first one always is. A candidate that has begun is not
        stopped, but networks are, after the epoch in which the time is over. A network that was
        stopped is not compared, and taken only if no candidate was finished.
    validation : float
        Share of the training rows on which candidates are compared. Every group needs rows there
        that count for the criterion.
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. None: all rows train, and
        ``calibrate`` is called with others before predicting.
    recalibrate : None or "group"
        Correct each group's logits by a line first, also where candidates are compared.
    pos_label : label, optional
        The positive label, the one that "selected" means; the greater of the two by default.
    sensitive_column : str, int or list, optional
        Column(s) of X that tell the group.
    min_count : int
        Least number of counted calibration rows in each group.
    random_state : int, RandomState or None
        Of the splits and of the candidates. With a whole number the same rows are held out as by
        other estimators that are given it.

    Attributes
    ----------
    chosen_ : str
        The candidate that was taken.
    why_ : str
        Why, in words; a saved model keeps both in its ``training_``. Of an error it names the
        type only, because its text may quote rows.
    trials_ : DataFrame
        A line a candidate: accuracy, difference to the best and its standard error over rows (in
        points), seconds, and what is to be said about it, such as the error with which it failed.
        Of one that was stopped, there are only the seconds, and its accuracy so far in what is
        said.
    model_ : FairBayes or GFB
        The chosen estimator, fitted, with the dial as it is; this is what :meth:`save` writes.
    frontier_ : Frontier
        Every position of the dial.

    Examples
    --------
    >>> from fairdial import AutoDial
    >>> from fairdial.datasets import load_compas
    >>> train, test = load_compas().split(random_state=0)
    >>> model = AutoDial(candidates=["logistic", "boosting"], random_state=0)
    >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
    >>> model.chosen_ in ("logistic", "boosting")
    True
    >>> decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=0.05)
    """

    def __init__(
        self,
        *,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        candidates: Sequence[str] | None = None,
        budget: float = 60.0,
        validation: float = 0.2,
        calibration: float | None = 0.2,
        recalibrate: str | None = None,
        pos_label: Any = None,
        sensitive_column: Any = None,
        min_count: int = 30,
        random_state: Any = None,
    ) -> None:
        self.criterion = criterion
        self.tolerance = tolerance
        self.candidates = candidates
        self.budget = budget
        self.validation = validation
        self.calibration = calibration
        self.recalibrate = recalibrate
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        self._check_settings()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of a former choice
        seed = self.random_state  # with a whole number the rows are those that others hold out
        if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        seed = int(seed)
        rows = self._rows_to_fit(X, y, sensitive_features, seed)  # as the chosen one will
        names, others = self._names(rows)
        if len(names) > 1:
            with TRYING, threadpool_limits(limits=1, user_api="blas"):
                trials = self._try(names, rows, seed) + others
            chosen, why = choose(trials)
        else:
            trials, chosen = others, names[0]
            why = f"It was the only candidate.{say_notes(others)}"
        model = self._make(chosen, rows.X, seed)
        with limit_threads(chosen, len(rows.labels)):
            model.fit(X, y, sensitive_features=sensitive_features)
        model.training_ |= {"chosen": chosen, "why": why}
        self.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_")})
        self.chosen_, self.why_, self.trials_ = chosen, why, to_frame(trials)
        self.model_ = model
        return self

    def _names(self, rows: FitRows) -> tuple[list[str], list[Trial]]:
        """The candidates in the order of trying, and those that can't be tried on these rows."""
        if self.candidates is not None:
            names = check_names(self.candidates)
            refuse_impossible(names, rows)
            return names, []
        why = find_hindrances(rows)
        others = [
            Trial(name, None, 0.0, f"{NOT_TRIED}: {told}", possible=False)
            for name, told in why.items()
        ]
        return [name for name in ORDER_OF_TRYING if name not in why], others

    def _check_settings(self) -> None:
        check_fraction(self.validation, "validation")
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        check_positive(self.budget, "budget", "seconds")
        check_count(self.min_count, "min_count")
        if self.candidates is not None:
            check_names(self.candidates)

    def _make(self, name: str, X: Any, seed: int, **changes: Any) -> Any:
        """A candidate, not trained yet, with this estimator's settings."""
        return make_candidate(name, X, seed, **(self._common() | {"random_state": seed} | changes))

    def _common(self) -> dict[str, Any]:
        """The settings that the candidates have from this estimator."""
        return {k: v for k, v in self.get_params(deep=False).items() if k not in OWN}

    def _try(self, names: Sequence[str], rows: FitRows, seed: int) -> list[Trial]:
        """Train every candidate on a part of the training rows, and look at the others."""
        held = hold_out(rows.cells[rows.train], self.validation, check_random_state(seed))
        train, look = np.delete(rows.train, held), rows.train[held]
        self._check_seen(rows, look)
        end = time.perf_counter() + self.budget
        found: list[Trial] = []
        errors: list[Exception] = []
        for name in names:
            start = time.perf_counter()
            if start >= end and any(trial.right is not None for trial in found):
                found.append(Trial(name, None, 0.0, f"{NOT_TRIED}: the time was over"))
                continue
            deadline, seconds, right, stopped = Deadline(end), 0.0, None, False
            note = told = ""
            try:
                scorer = self._train(name, rows, train, seed, deadline)
                seconds = time.perf_counter() - start
                right = self._delivered(scorer, rows, look)
            except Exception as error:  # the others may do
                errors.append(error)
                note, told = f"{FAILED}: {type(error).__name__}", say_error(error)
            if right is not None and deadline.epoch is not None:
                stopped = True
                note = (
                    f"stopped after epoch {deadline.epoch}, when the time was over; "
                    f"{right.mean():.4f} so far"
                )
            found.append(Trial(name, right, seconds, note, told, stopped=stopped))
        if all(trial.right is None for trial in found):
            failures = "; ".join(f"{trial.name} {trial.told}" for trial in found)
            raise InvalidInputError(
                "`candidates` must hold one that can be trained on these rows, got none: "
                f"{failures}"
            ) from errors[0]
        failed = [f"{t.name} ({t.note})" for t in found if t.note.startswith(FAILED)]
        if failed:
            warn(
                f"not all candidates could be compared: {', '.join(failed)}. `trials_` has the "
                "errors in full",
                TrainingWarning,
            )
        return found

    def _train(
        self, name: str, rows: FitRows, train: Rows, seed: int, deadline: Deadline
    ) -> Scorer:
        """What a candidate that is trained on these rows scores by."""
        groups = np.array([*rows.names, None], dtype=object)[:-1]  # names may be tuples
        changes = {"calibration": None, "sensitive_column": None, "deadline": deadline}
        model = self._make(name, rows.X, seed, **changes)
        with limit_threads(name, len(rows.labels)):
            model.fit(
                take_rows(rows.X, train),
                rows.labels[train],
                sensitive_features=groups[rows.codes[train]],
            )
        scorer: Scorer = model.scorer_
        return scorer

    def _check_seen(self, rows: FitRows, look: Rows) -> None:
        """Candidates are compared on counted rows of every group."""
        kind = find_criterion(self.criterion)
        label, size = kind.rates[0].counted, len(rows.names)
        seen, there = (
            count_by_group(rows.codes[places], rows.positive[places], kind, size)
            for places in (look, rows.train)
        )
        lacking = [
            f"{name!r} (it has {n} among the training rows)"
            for name, some, n in zip(rows.names, seen, there, strict=True)
            if not some
        ]
        if lacking:
            raise InvalidInputError(
                "`validation` must hold rows of every group that count for "
                f"{kind.name}{'' if label is None else f' (label {label})'}, got none of "
                f"{', '.join(lacking)}. Merge small groups, leave their rows out, or name one "
                "candidate, which is compared with nothing."
            )

    def _delivered(self, scorer: Scorer, rows: FitRows, look: Rows) -> Floats:
        """(n,) how often each of these rows is decided rightly, over the tolerances.

        Where no position of the dial is within a tolerance, everybody gets the more frequent label:
        that has gap 0, and is always allowed.
        """
        codes, positive = rows.codes[look], rows.positive[look]
        logits = scorer.logits(take_rows(rows.X, look), codes)
        if self.recalibrate == "group":
            logits = PlattMap.fit(logits, codes, positive, rows.names)(logits, codes)
        kind = find_criterion(self.criterion)
        frontier = sweep_codes(logits, codes, positive, kind, rows.names, min_count=1)
        states, feasible = frontier.states.first_within(TOLERANCES)
        thresholds = frontier.states.read(states)[0][:, codes]  # (T, n)
        usual = 2 * np.count_nonzero(positive) > len(positive)
        decided = np.where(feasible[:, None], logits > thresholds, usual)
        return np.asarray((decided == positive).mean(axis=0), np.float64)

    @groups_by_name
    def calibrate(
        self, X: Any, y: ArrayLike | None = None, *, sensitive_features: Any = None
    ) -> Self:
        """Find the frontier anew on held-out rows, as FairBayes does; ``model_`` gets it too."""
        super().calibrate(X, y, sensitive_features=sensitive_features)
        return self._hand_on()

    def calibrate_parquet(
        self,
        path: str | PathLike[str],
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
        tolerances: ArrayLike | None = None,
    ) -> Self:
        """Find the frontier anew on scored rows in Parquet files; ``model_`` gets it too."""
        super().calibrate_parquet(
            path, score=score, group=group, label=label, tolerances=tolerances
        )
        return self._hand_on()

    def _hand_on(self) -> Self:
        """The chosen estimator gets settings and dial as they are now.

        It is a copy of the former one, which others may hold too.
        """
        self.model_ = copy.copy(self.model_).set_params(**self._common())
        for name in HANDED_ON:
            if hasattr(self, name):
                setattr(self.model_, name, getattr(self, name))
        return self

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, key: Key = None) -> str:
        """Write the chosen model to a folder, as its own ``save`` does.

        What is loaded again is that estimator, FairBayes or GFB, with the dial as it is now; its
        ``training_`` tells what was chosen and why, and so do the model's card and
        ``fairdial info``.
        """
        self._check_scorer()
        return str(self._hand_on().model_.save(folder, overwrite=overwrite, key=key))
