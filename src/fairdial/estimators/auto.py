"""AutoDial: try several methods on validation rows, and keep the simplest good one."""

from __future__ import annotations

import copy
import numbers
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from fairdial._arrays import Floats, Indices
from fairdial._validation import check_choice, check_count, check_fraction, check_positive
from fairdial.core.criteria import Given
from fairdial.core.decide import select
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget
from fairdial.core.sweep import sweep_encoded
from fairdial.errors import InvalidInputError, TrainingWarning, warn
from fairdial.estimators.base import DialClassifier, Key, Seed
from fairdial.estimators.candidates import (
    Deadline,
    add_variants,
    check_names,
    check_possible,
    default_names,
    find_obstacles,
    installed_libraries,
    make_candidate,
    method_of_variant,
)
from fairdial.estimators.learners import limit_threads
from fairdial.estimators.rows import RowOptions, Rows, groups_by_name, hold_out, take_rows
from fairdial.estimators.scorers import PlattMap, Scorer
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.estimators.trials import (
    FAILED,
    NOT_TRIED,
    TOLERANCES,
    Trial,
    choose,
    describe_tolerances,
    join_notes,
    row_values,
    shorten_error,
    to_frame,
)

TRYING = threading.Lock()  # BLAS has one number of threads for the whole process
SYNCED = (
    "frontier_",
    "platt_",
    "training_",
    "group_columns_",
)  # learned attributes that model_ gets, too
OWN = (
    "candidates",
    "tune_at",
    "time_limit",
    "validation",
    "random_state",
)  # model_ doesn't get these


class AutoDial(ThresholdClassifier):
    """The simplest of the methods that are about as good as the best on validation rows.

    Each candidate is trained on part of the training rows. On the rest, the accuracy of its
    decisions is averaged over the tolerances 0.01, 0.02, ..., 0.20, whatever ``tolerance`` is. Of
    the candidates within one standard error of the best (paired, row by row), AutoDial chooses the
    simplest, the first in the order "logistic", "boosting", "blend", "network", "gfb", and trains
    it again on all training rows. If a candidate doesn't reach a tolerance on the validation rows,
    the accuracy of giving everybody the more frequent label counts instead.

    The accuracies are for choosing only: thresholds are found on the rows that they are measured
    on, and the best of several candidates is also the luckiest. The standard errors reflect the
    choice of rows, not the randomness of training.

    To change criterion, objective or budget of a trained model, call ``set_params`` and then
    ``calibrate``: nothing is trained again.

    Infinite numbers are refused before anything is trained. A candidate that fails is not chosen; a
    :class:`~fairdial.TrainingWarning` names it.

    With an integer ``random_state`` the choice is reproducible, unless time runs out. BLAS
    uses one thread while candidates are tried, so that its sums don't depend on the number of
    threads; fits in other threads of the process wait meanwhile. Trees of fewer than 100,000 rows
    are grown by one thread, because several slow each other down on busy cores.

    Parameters
    ----------
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" and
        others, and combinations; see :func:`fairdial.criterion`. "gfb" needs one rate.
    tolerance : float
        Default tolerance of ``predict``; 0 is the one that the criterion declares, if it does.
    objective : str or Objective
        What the thresholds maximize: "accuracy", "balanced_accuracy", "f1" or
        :func:`fairdial.Costs`. Candidates are compared by it.
    budget : float, int or Budget, optional
        Select at most this share (at most 1) or number of the calibration rows.
    nested : bool, optional
        True: each row changes its decision at most once along the dial. False: the best thresholds
        at each tolerance. See :func:`fairdial.sweep`.
    rising : bool
        Only lower thresholds: no row loses a positive decision.
    randomize : {None, "hash"}
        "hash" mixes thresholds by a hash of the row's features, so that the tolerance holds in
        expectation, and the same row always gets the same decision.
    candidates : list of str, optional
        Some of "logistic" (logistic regression on the columns as networks see them, without the
        group), "boosting" (gradient boosting with trees smaller than scikit-learn's default: in our
        study as good on Adult, and on COMPAS better by about a point, which isn't established),
        "blend" (the averaged logits of both), "network" (three nets), "gfb", and, where they are
        installed, "lightgbm", "xgboost" and "catboost". By default all but the last three that can
        be trained on these rows: networks need torch, and trees are not tried on 256 or more
        columns of numbers. ``why_`` and ``trials_`` name those that were left out.
    tune_at : float, optional
        Compare candidates at this tolerance alone, and try more of them as long as time is left:
        boosting with other settings of its trees, and the libraries "lightgbm", "xgboost" and
        "catboost" that are installed. Other settings come right after "boosting", and are chosen
        only if they are better by more than a standard error.
    time_limit : float
        Seconds for everything: trying candidates, and training the chosen one again on all rows.
        Candidates are tried in the given order, by default "boosting", "logistic", "blend",
        "network", "gfb", as long as the time that is left is enough for one more that is as slow
        as the slowest so far; the first one is always tried. Only networks are stopped: a candidate
        after half of the time that is left, which is not compared then and chosen only if no other
        was finished, and the chosen one at the end. A single candidate has no limit.
    validation : float
        Share of the training rows on which candidates are compared. Every group needs eligible
        rows there.
    calibration : float, "auto" or None
        Share of the rows that ``fit`` holds out to find the frontier. "auto" holds out what
        certifying ``tolerance`` with confidence 0.95 is likely to need. If None, train on all rows
        and call ``calibrate`` with other rows before predicting.
    recalibrate : None or "group"
        "group" corrects each group's logits with a line first, also when candidates are compared.
    pos_label : label, optional
        Value of the positive class; the one that sorts last by default.
    sensitive_column : str, int or list, optional
        Group column(s) of X.
    min_count : int
        Minimum number of eligible calibration rows in each group.
    random_state : int, RandomState or None
        Seed of the splits and the candidates. With an integer, the same rows are held out as by
        other estimators with that integer.

    Attributes
    ----------
    chosen_ : str
        The chosen candidate.
    why_ : str
        The reason; a saved model keeps both in its ``training_``. It names only the type of an
        error, because the message may quote rows.
    trials_ : DataFrame
        One line per candidate: accuracy (or the objective), difference from the best and its
        standard error over rows (in points), seconds, and a note, such as the error with which it
        failed. A stopped candidate has only seconds, and its accuracy so far in the note.
    model_ : FairBayes or GFB
        The chosen estimator, fitted; this is what :meth:`save` writes.
    frontier_ : Frontier
        Operating points for every tolerance.

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
        criterion: Given = "demographic_parity",
        tolerance: float | None = 0.0,
        objective: str | Objective = "accuracy",
        budget: float | Budget | None = None,
        nested: bool | None = None,
        rising: bool = False,
        randomize: Literal["hash"] | None = None,
        candidates: Sequence[str] | None = None,
        tune_at: float | None = None,
        time_limit: float = 120.0,
        validation: float = 0.2,
        calibration: float | Literal["auto"] | None = 0.2,
        recalibrate: str | None = None,
        pos_label: object = None,
        sensitive_column: object = None,
        min_count: int = 30,
        random_state: Seed = None,
    ) -> None:
        self.criterion = criterion
        self.tolerance = tolerance
        self.objective = objective
        self.budget = budget
        self.nested = nested
        self.rising = rising
        self.randomize = randomize
        self.candidates = candidates
        self.tune_at = tune_at
        self.time_limit = time_limit
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

    def _fit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        self._check_settings()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of a former choice
        given = self.random_state
        if isinstance(given, bool) or not isinstance(given, numbers.Integral):
            given = check_random_state(given).randint(2**31 - 1)
        seed = int(given)
        rows = self._rows_to_fit(  # the rows that model_ will use
            X, y, sensitive_features, seed, **more
        )
        names, others = self._names(rows)
        deadline = None
        if len(names) > 1:
            end = time.perf_counter() + self.time_limit
            with TRYING, threadpool_limits(limits=1, user_api="blas"):
                trials = self._try(names, rows, seed, end, more) + others
            deadline = Deadline(end)
            chosen, why = choose(trials)
        else:
            trials, chosen = others, names[0]
            why = f"It was the only candidate.{join_notes(others)}"
        model = self._make(chosen, rows.X, seed, deadline=deadline)
        with limit_threads(len(rows.labels), trees=method_of_variant(chosen).trees):
            model.fit(X, y, sensitive_features=sensitive_features, **more)
        model.set_params(**self._make(chosen, rows.X, seed).get_params(deep=False))  # no deadline
        if deadline is not None and deadline.epoch is not None:
            warn(
                f"training {chosen} on all rows was stopped after epoch {deadline.epoch}, when "
                "`time_limit` ran out",
                TrainingWarning,
            )
        model.training_["chosen"], model.training_["why"] = chosen, why
        self.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_")})
        self.chosen_, self.why_ = chosen, why
        self.trials_ = to_frame(trials).rename(columns={"accuracy": self.problem.objective.name})
        self.model_ = model
        return self

    def _names(self, rows: Rows) -> tuple[list[str], list[Trial]]:
        """Return the candidates to try, in order, and trials of those that these rows rule out."""
        if self.candidates is not None:
            names = check_names(self.candidates)
            check_possible(names, rows)
            return names if self.tune_at is None else add_variants(names), []
        obstacles = find_obstacles(rows)
        others = [
            Trial(name, None, 0.0, f"{NOT_TRIED}: {reason}", possible=False)
            for name, reason in obstacles.items()
        ]
        names = [name for name in default_names() if name not in obstacles]
        if self.tune_at is not None:
            trees = "boosting" not in obstacles
            names = add_variants([*names, *(installed_libraries() if trees else [])])
        return names, others

    def _check_settings(self) -> None:
        check_fraction(self.validation, "validation")
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        check_positive(self.time_limit, "time_limit", "seconds")
        if self.tune_at is not None:
            check_fraction(self.tune_at, "tune_at")
        check_count(self.min_count, "min_count")
        if self.candidates is not None:
            check_names(self.candidates)

    @property
    def _tolerances(self) -> Floats:
        """The tolerances that candidates are compared at."""
        return TOLERANCES if self.tune_at is None else np.array([float(self.tune_at)])

    def _make(self, name: str, X: Any, seed: int, **changes: Any) -> DialClassifier:
        """Return a candidate, not trained yet, with this estimator's parameters."""
        return make_candidate(name, X, seed, **(self._common() | changes))

    def _common(self) -> dict[str, Any]:
        """Return the parameters that candidates share with this estimator."""
        return {k: v for k, v in self.get_params(deep=False).items() if k not in OWN}

    def _try(
        self, names: Sequence[str], rows: Rows, seed: int, end: float, more: RowOptions
    ) -> list[Trial]:
        """Train every candidate on part of the training rows, and measure it on the rest.

        Time is left for training the chosen one again on all training rows.
        """
        held = hold_out(rows.cells[rows.train], self.validation, check_random_state(seed))
        train, look = np.delete(rows.train, held), rows.train[held]
        self._check_validation(rows, look)
        found: list[Trial] = []
        errors: list[Exception] = []
        title = self.problem.objective.title
        over = describe_tolerances(self._tolerances)
        for name in names:
            start = time.perf_counter()
            slowest = max((trial.seconds for trial in found), default=0.0)
            again = slowest / (1 - self.validation)  # on all training rows
            if start + slowest + again >= end and any(trial.correct is not None for trial in found):
                found.append(Trial(name, None, 0.0, f"{NOT_TRIED}: time ran out"))
                continue
            deadline = Deadline(start + (end - start) / 2)
            seconds, correct, stopped = 0.0, None, False
            note = message = ""
            try:
                scorer = self._train(name, rows, train, seed, deadline, more)
                seconds = time.perf_counter() - start
                correct = self._measure(scorer, rows, look)
            except Exception as error:  # other candidates may succeed
                errors.append(error)
                note, message = f"{FAILED}: {type(error).__name__}", shorten_error(error)
            if correct is not None and deadline.epoch is not None:
                stopped = True
                note = (
                    f"stopped after epoch {deadline.epoch}, when time ran out; "
                    f"{correct.mean():.4f} so far"
                )
            trial = Trial(
                name, correct, seconds, note, message, stopped=stopped, title=title, over=over
            )
            found.append(trial)
        if all(trial.correct is None for trial in found):
            failures = "; ".join(f"{trial.name} {trial.message}" for trial in found)
            raise InvalidInputError(
                "candidates",
                "hold one that can be trained on these rows",
                given=f"none: {failures.removesuffix('.')}",
            ) from errors[0]
        failed = [f"{t.name} ({t.note})" for t in found if t.note.startswith(FAILED)]
        if failed:
            warn(
                f"not all candidates could be compared: {', '.join(failed)}. `trials_` has the "
                "full error messages",
                TrainingWarning,
            )
        return found

    def _train(
        self,
        name: str,
        rows: Rows,
        train: Indices,
        seed: int,
        deadline: Deadline,
        more: RowOptions,
    ) -> Scorer:
        """Return the scorer of a candidate that is trained on these rows."""
        groups = np.array([*rows.groups, None], dtype=object)[:-1]  # names may be tuples
        control = more.get("control_features")
        changes = {"calibration": None, "sensitive_column": None, "deadline": deadline}
        model = self._make(name, rows.X, seed, **changes)
        with limit_threads(len(rows.labels), trees=method_of_variant(name).trees):
            model.fit(
                take_rows(rows.X, train),
                rows.labels[train],
                sensitive_features=groups[rows.codes[train]],
                sample_weight=rows.weights_of(train),
                control_features=None if control is None else take_rows(control, train),
            )
        scorer: Scorer = model.scorer_
        return scorer

    def _check_validation(self, rows: Rows, places: Indices) -> None:
        """Raise unless every group has eligible validation rows."""
        kind = rows.criterion
        seen, there = (
            kind.eligible_counts(rows.sample(some).counts()) for some in (places, rows.train)
        )
        lacking = [
            f"{name!r} (it has {n} among the training rows)"
            for name, some, n in zip(rows.groups, seen, there, strict=True)
            if not some
        ]
        if lacking:
            raise InvalidInputError(
                "validation",
                f"hold rows of every group that are eligible for {kind.name} "
                f"({', '.join(sorted({demand.name for demand in kind.demands}))})",
                given=f"none of {', '.join(lacking)}",
                hint=(
                    "Merge small groups, or leave their rows out.",
                    "A single candidate needs no validation rows.",
                ),
            )

    def _measure(self, scorer: Scorer, rows: Rows, places: Indices) -> Floats:
        """Return (n,) what each of these rows contributes to the mean value over tolerances.

        For accuracy, it is the share of tolerances at which the row is decided correctly. If no
        operating point is within a tolerance, everybody gets the more frequent label, which has
        gap 0.
        """
        sample = rows.sample(places)
        codes, positive, weights = sample.codes, rows.y[places], sample.weights
        logits = scorer.logits(take_rows(rows.X, places), codes)
        if self.recalibrate == "group":
            logits = PlattMap.fit(logits, codes, positive, rows.groups, weights)(logits, codes)
        problem = replace(self._make_problem(sample.n_rows), criterion=rows.criterion)
        frontier = sweep_encoded(
            logits,
            codes,
            positive,
            problem,
            rows.groups,
            strata=sample.strata,
            weights=weights,
            min_count=1,
        )
        points, feasible = frontier.points.choose(self._tolerances)
        thresholds = points.read(np.arange(len(points)))[0][:, codes]  # (T, n)
        majority = problem.budget is None and 2 * np.count_nonzero(positive) > len(positive)
        decided = np.where(feasible[:, None], select(logits, thresholds), majority)
        values = row_values(problem.objective, decided, positive, weights)
        return np.asarray(values.mean(axis=0), np.float64)

    @groups_by_name
    def calibrate(
        self,
        X: object,
        y: ArrayLike | None = None,
        *,
        sensitive_features: object = None,
        sample_weight: object = None,
        control_features: object = None,
    ) -> Self:
        """Find the frontier on held-out rows, as FairBayes does, also for ``model_``."""
        super().calibrate(
            X,
            y,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
            control_features=control_features,
        )
        return self._sync()

    def calibrate_parquet(
        self,
        path: str | PathLike[str],
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
        weight: str | None = None,
        control: str | None = None,
        tolerances: ArrayLike | None = None,
    ) -> Self:
        """Find the frontier on scored rows in Parquet files, also for ``model_``."""
        super().calibrate_parquet(
            path,
            score=score,
            group=group,
            label=label,
            weight=weight,
            control=control,
            tolerances=tolerances,
        )
        return self._sync()

    def _sync(self) -> Self:
        """Give a copy of the chosen estimator the current parameters and frontier."""
        self.model_ = copy.copy(self.model_).set_params(**self._common())
        self.model_.__dict__.pop("group_columns_", None)
        for name in SYNCED:
            if hasattr(self, name):
                setattr(self.model_, name, getattr(self, name))
        return self

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, key: Key = None) -> str:
        """Write the chosen model to a folder, as its own ``save`` does.

        Loading returns that estimator, FairBayes or GFB, with the current frontier. Its
        ``training_``, the model card and ``fairdial info`` show what was chosen and why.
        """
        self._check_scorer()
        return str(self._sync().model_.save(folder, overwrite=overwrite, key=key))
