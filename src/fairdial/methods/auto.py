"""Which training gives the best dial on these rows: tried on validation rows, within a time."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from fairdial._validation import check_choice, check_fraction
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError, MissingExtraError
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.gfb import GFB
from fairdial.methods.learners import boosting, is_wide, logistic, texts_of
from fairdial.methods.network import Network, need
from fairdial.methods.rows import FitRows, Rows, hold_out, take_rows
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.persistence.manifest import Key
from fairdial.sweeping import sweep_codes

Floats = NDArray[np.float64]

PARTS = ("logistic", "boosting")
CANDIDATES = (*PARTS, "blend", "network", "gfb")
TOLERANCES = np.linspace(0.0, 0.2, 21)  # whose accuracies are averaged
WIDE_DROPOUT = 0.5
POINTS = 100.0


class AutoDial(ThresholdClassifier):
    """The best of several trainings for the dial, by the frontier on validation rows.

    Each candidate is trained on a part of the training rows. On the others, the accuracy that its
    dial delivers is averaged over the tolerances 0, .01, ..., .20. Among the candidates that are
    not below the best by more than one standard error (paired, row by row), the one that trained
    fastest is taken, and trained anew on all training rows.

    Parameters
    ----------
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    candidates : sequence of str, optional
        Some of "logistic" (regression on the features that networks see), "boosting", "blend"
        (their logits averaged), "network" (three nets) and "gfb". By default all that can be
        trained on these rows: networks need torch, "gfb" two groups.
    budget : float
        Seconds for trying. Candidates are tried in the order above; a network that isn't done when
        the time is over is stopped, and what was not reached is not tried. The final training comes
        on top.
    validation : float
        Share of the training rows on which candidates are compared.
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. None: all rows train, and
        ``calibrate`` is called with others before predicting.
    recalibrate : None or "group"
        Correct each group's logits by a line first.
    pos_label : label, optional
        The positive label, the one that "selected" means; the greater of the two by default.
    sensitive_column : str, int or list, optional
        Column(s) of X that tell the group.
    min_count : int
        Least number of counted calibration rows in each group.
    random_state : int, RandomState or None
        Of the splits and of the candidates.

    Attributes
    ----------
    chosen_ : str
        The candidate that was taken.
    why_ : str
        Why, in words.
    trials_ : DataFrame
        A line a candidate: accuracy, difference to the best and its standard error (in points),
        seconds, and what is to be said about it.
    model_ : FairBayes or GFB
        The chosen estimator, fitted; this is what :meth:`save` writes.
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
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = copy.copy(self)._with(seed)._rows_to_fit(X, y, sensitive_features)
        names = self.candidates or _possible(rows)
        trials = [] if len(names) == 1 else self._try(names, rows, seed)
        self.chosen_, self.why_ = choose(trials) if trials else (names[0], "Nothing to choose.")
        self.trials_ = to_frame(trials)
        model = self._make(self.chosen_, rows.X, seed)
        model.fit(X, y, sensitive_features=sensitive_features)
        self.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_")})
        self.model_ = model
        return self

    def _with(self, seed: int) -> Self:
        """The same with the chosen estimator's seed, so that it holds the same rows out."""
        self.random_state = seed
        return self

    def _check_settings(self) -> None:
        check_fraction(self.validation, "validation")
        for name in self.candidates or ():
            check_choice(name, "candidates", CANDIDATES)
        if self.candidates is not None and (
            isinstance(self.candidates, str) or len(set(self.candidates)) != len(self.candidates)
        ):
            raise InvalidInputError(
                f"`candidates` must be different names of {', '.join(CANDIDATES)}, got "
                f"{self.candidates!r}."
            )
        if self.candidates is not None and not self.candidates:
            raise InvalidInputError("`candidates` must hold at least one name, got none.")
        if not (isinstance(self.budget, (int, float)) and self.budget > 0):
            raise InvalidInputError(f"`budget` must be seconds above 0, got {self.budget!r}.")

    def _make(self, name: str, X: Any, seed: int, **changes: Any) -> Any:
        """A candidate, not trained yet, with this estimator's settings."""
        own = self.get_params(deep=False)
        common = {
            k: v for k, v in own.items() if k not in ("candidates", "budget", "validation")
        } | {"random_state": seed}
        return make_candidate(name, X, seed, **(common | changes))

    def _try(self, names: Sequence[str], rows: FitRows, seed: int) -> list[Trial]:
        """Train every candidate on a part of the training rows, and look at the others."""
        held = hold_out(rows.cells[rows.train], self.validation, check_random_state(seed))
        train, look = np.delete(rows.train, held), rows.train[held]
        groups = np.array([*rows.names, None], dtype=object)[:-1]  # names may be tuples
        X, labels, told = take_rows(rows.X, train), rows.labels[train], groups[rows.codes[train]]
        end = time.perf_counter() + self.budget
        scores: dict[str, Floats] = {}
        found: list[Trial] = []
        for name in names:
            start = time.perf_counter()
            if found and start >= end:
                found.append(Trial(name, None, 0.0, "not tried: the time was over"))
                continue
            if name == "blend" and set(PARTS) <= set(scores):  # they are trained already
                scores[name] = np.mean([scores[part] for part in PARTS], axis=0)
                seconds = sum(trial.seconds for trial in found if trial.name in PARTS)
            else:
                model = self._make(
                    name, rows.X, seed, calibration=None, sensitive_column=None, end=end
                )
                model.fit(X, labels, sensitive_features=told)
                seconds = time.perf_counter() - start
                scores[name] = model.scorer_.logits(take_rows(rows.X, look), rows.codes[look])
            cut = time.perf_counter() >= end and name in ("network", "gfb")
            note = "stopped when the time was over" if cut else ""
            found.append(Trial(name, self._delivered(scores[name], rows, look), seconds, note))
        return found

    def _delivered(self, logits: Floats, rows: FitRows, look: Rows) -> Floats:
        """(n,) how often each of these rows is decided rightly, over the tolerances."""
        kind, positive = find_criterion(self.criterion), rows.positive[look]
        frontier = sweep_codes(logits, rows.codes[look], positive, kind, rows.names, min_count=1)
        states, _ = frontier.states.first_within(TOLERANCES)
        thresholds = frontier.states.read(states)[0][:, rows.codes[look]]  # (T, n)
        return np.asarray(((logits > thresholds) == positive).mean(axis=0), np.float64)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, key: Key = None) -> str:
        """Write the chosen model to a folder, as its own ``save`` does.

        What is loaded again is that estimator, FairBayes or GFB, with the dial as it is now.
        """
        self._check_scorer()
        model = copy.copy(self.model_)
        for name in ("frontier_", "platt_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        model.tolerance = self.tolerance
        return str(model.save(folder, overwrite=overwrite, key=key))


@dataclass(frozen=True)
class Trial:
    """A candidate on the validation rows."""

    name: str
    right: Floats | None  # (n,) by row; None: not tried
    seconds: float
    note: str = ""


def choose(trials: Sequence[Trial]) -> tuple[str, str]:
    """The fastest candidate within a standard error of the best; and why, in words.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.methods.auto import Trial, choose
    >>> good, bad = np.tile([1.0, 1.0, 0.0], 100), np.tile([1.0, 0.0, 0.0], 100)
    >>> choose([Trial("quick", bad, 1.0), Trial("slow", good, 9.0)])[0]
    'slow'
    """
    table = to_frame(trials).dropna(subset=["accuracy"])
    close = table[table["difference"] >= -table["error"]]
    best, taken = table["accuracy"].idxmax(), close["seconds"].idxmin()
    line = table.loc[taken]
    others = "; ".join(
        f"{name} {row['difference']:+.2f} ± {row['error']:.2f} points, {row['seconds']:.1f} s"
        for name, row in table.drop(index=best).iterrows()
    )
    told = (
        f"{best} has the best mean accuracy over tolerances 0 to {TOLERANCES[-1]:g} on validation "
        f"rows, {table.loc[best, 'accuracy']:.4f} in {table.loc[best, 'seconds']:.1f} s"
    )
    told += f" ({others})." if others else "."
    if taken != best:
        told += f" {taken} is within one standard error and trains faster: {line['seconds']:.1f} s."
    missing = [t for t in trials if t.note]
    told += "".join(f" {t.name}: {t.note}." for t in missing)
    return str(taken), told


def to_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """A line a candidate, in the order in which they were tried."""
    columns = ["accuracy", "difference", "error", "seconds", "note"]
    known = [t.right for t in trials if t.right is not None]
    if not known:
        return pd.DataFrame(columns=columns, index=pd.Index([], name="candidate"))
    best = max(known, key=lambda right: float(right.mean()))
    lines = {}
    for t in trials:
        if t.right is None:
            lines[t.name] = (np.nan, np.nan, np.nan, np.nan, t.note)
            continue
        off = t.right - best
        error = float(off.std(ddof=1)) / len(off) ** 0.5 if len(off) > 1 else 0.0
        figures = float(t.right.mean()), POINTS * float(off.mean()), POINTS * error
        lines[t.name] = (*figures, t.seconds, t.note)
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return frame.rename_axis("candidate")


def _possible(rows: FitRows) -> list[str]:
    """What can be trained on these rows."""
    names = list(CANDIDATES)
    own = not isinstance(rows.X, (pd.DataFrame, np.ndarray))
    if isinstance(rows.X, Pictures):
        raise InvalidInputError(
            "`X` must be a table for AutoDial, got Pictures: give it features of "
            "ResNetEncoder, or FairBayes a network with a trunk."
        )
    if own or is_wide(rows.X):  # tensors have no columns; trees are slow on embeddings
        names = [n for n in names if n not in ("boosting", "blend")]
    try:
        need("torch")
    except MissingExtraError:
        names = [n for n in names if n not in ("network", "gfb")]
    if len(rows.names) != 2:
        names = [n for n in names if n != "gfb"]
    return names


class _Deadline:
    """Ends a training when the time is over."""

    def __init__(self, end: float) -> None:
        self.end = end

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: Any) -> bool:  # noqa: ARG002
        """Whether to stop."""
        return time.perf_counter() >= self.end


def make_candidate(
    name: str, X: Any, seed: int, *, end: float | None = None, **common: Any
) -> FairBayes | GFB:
    """A candidate for these rows, not trained yet.

    Parameters
    ----------
    name : str
        One of ``CANDIDATES``.
    X : table or array
        The rows, which tell how they are encoded.
    seed : int
        Of what the candidate draws.
    end : float, optional
        When a network is to be stopped, by ``time.perf_counter``.
    common
        Arguments that both estimators take.
    """
    wide = is_wide(X)
    if name in ("network", "gfb"):
        network = Network(
            encoder=StandardScaler() if wide else "auto",
            dropout=WIDE_DROPOUT if wide else 0.0,
            callbacks=None if end is None else [_Deadline(end)],
        )
        if name == "gfb":
            return GFB(network=network, **common)
        return FairBayes(network, **common)
    if name == "logistic":
        return FairBayes(logistic(wide=wide), **common)
    if name == "boosting":
        return FairBayes(boosting(texts_of(X), seed), **common)
    return FairBayes([logistic(wide=wide), boosting(texts_of(X), seed)], **common)
