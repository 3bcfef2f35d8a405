"""AutoDial's trials: the candidates on validation rows, which one is chosen, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairdial._arrays import Floats, Mask, Weights
from fairdial.core.objectives import Objective
from fairdial.estimators.candidates import method_of_variant

TOLERANCES = np.linspace(0.01, 0.2, 20)  # averaged over; 0 is only reached by chance
POINTS = 100.0
MAX_ERROR_LENGTH = 200  # characters
CAUTION = (
    " These figures are for choosing only: thresholds were found on the same rows, so they are "
    "optimistic and say nothing about new rows."
)
NOT_TRIED, FAILED = "not tried", "failed"  # how notes begin


@dataclass(frozen=True)
class Trial:
    """A candidate on the validation rows."""

    name: str
    correct: Floats | None  # (n,) contribution of each row to the mean value; None: not tried
    seconds: float
    note: str = ""
    error: str = ""  # may quote rows, so it is shown during training but never saved
    stopped: bool = False  # by the time limit: half-trained, not compared with others
    possible: bool = True  # on these rows
    title: str = "accuracy"  # of what is measured
    over: str = ""  # at which tolerances

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end and can be compared."""
        return self.correct is not None and not self.stopped

    @property
    def message(self) -> str:
        """The note, with the error if there is one."""
        return f"{self.note}: {self.error}" if self.error else self.note

    @property
    def accuracy(self) -> float:
        """The mean over rows and tolerances; NaN if it wasn't tried."""
        return float("nan") if self.correct is None else float(self.correct.mean())


def row_values(
    objective: Objective, selected: Mask, positive: Mask, weights: Weights | None = None
) -> Floats:
    """Return numbers (T, n) whose mean over the rows is the objective of decisions (T, n).

    Their standard deviation gives the objective's standard error; for F1, which is a quotient, to
    first order. For accuracy without weights, they are 1 for correct decisions and 0 for others.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import Costs
    >>> from fairdial.estimators.trials import row_values
    >>> decided, positive = np.array([[True, True, False]]), np.array([True, False, True])
    >>> row_values(Costs(false_positive=1, false_negative=5), decided, positive)
    array([[-0., -1., -5.]])
    """
    n = len(positive)
    scale = np.ones(n) if weights is None else weights * (n / weights.sum())
    correct = selected == positive
    match objective.name:
        case "costs":
            cost = np.where(positive, objective.false_negative, objective.false_positive)
            return np.asarray(-scale * cost * ~correct)
        case "balanced_accuracy":
            totals = np.array([(scale * ~positive).sum(), (scale * positive).sum()])
            return np.asarray(scale * correct * (0.5 * n) / totals[positive.astype(np.intp)])
        case "f1":
            above = 2.0 * scale * (selected & positive)
            below = scale * (1.0 * selected + positive)
            total = below.mean(axis=-1, keepdims=True)
            value = above.mean(axis=-1, keepdims=True) / total
            return np.asarray(value + (above - value * below) / total)
        case _:
            return np.asarray(scale * correct, np.float64)


def shorten_error(error: Exception) -> str:
    """Return an error's message in one line of printable characters."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return textwrap.shorten(text, MAX_ERROR_LENGTH)


def choose(trials: Sequence[Trial]) -> tuple[str, str]:
    """Return the simplest candidate within one standard error of the best, and why.

    Stopped candidates are not compared; the best of them is chosen if none was finished.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.estimators.trials import Trial, choose
    >>> good, bad = np.tile([1.0, 1.0, 0.0], 100), np.tile([1.0, 0.0, 0.0], 100)
    >>> choose([Trial("logistic", bad, 1.0), Trial("network", good, 9.0)])[0]
    'network'
    """
    finished = [trial for trial in trials if trial.finished]
    if len(finished) > 1:
        chosen, why = _compare(finished)
    elif finished:
        chosen, why = finished[0].name, _explain_only(finished[0], trials)
    else:
        chosen, why = _choose_stopped(trials)
    why += CAUTION + join_notes(trials)
    if len(finished) > 1:
        why += f" So {chosen} was chosen."
    elif not finished:
        why += " The final training has no time limit."
    return chosen, why


def join_notes(trials: Sequence[Trial]) -> str:
    """Return the notes of all trials, as the end of a text."""
    return "".join(f" {t.name}: {t.note.removesuffix('.')}." for t in trials if t.note)


def _compare(trials: Sequence[Trial]) -> tuple[str, str]:
    """Choose the simplest of several finished candidates that are about as good as the best."""
    table = to_frame(trials)
    close = table[table["difference"] >= -table["error"]]
    best, chosen = str(table["accuracy"].idxmax()), min(close.index, key=_complexity)
    others = "; ".join(
        f"{name} {row['difference']:+.2f} ± {row['error']:.2f} points, {row['seconds']:.1f} s"
        for name, row in table.drop(index=best).iterrows()
    )
    first = next(trial for trial in trials if trial.name == best)
    why = f"{best} has the best {_describe_accuracy(first)} ({others})."
    if chosen != best:
        why += f" {chosen} is the simplest one within one standard error of it."
    return str(chosen), why


def _complexity(name: str) -> int:
    return method_of_variant(name).complexity


def _explain_only(only: Trial, trials: Sequence[Trial]) -> str:
    """Explain why the only finished candidate was compared with nothing."""
    others = [trial for trial in trials if trial is not only and trial.possible]
    if all(trial.note.startswith(NOT_TRIED) for trial in others):
        why = "that was tried within the time limit"
    elif all(trial.note.startswith(FAILED) for trial in others):
        why = "that could be trained"
    else:
        why = "whose training was finished"
    return f"{only.name} is the only one {why}, with {_describe_accuracy(only)}."


def _choose_stopped(trials: Sequence[Trial]) -> tuple[str, str]:
    """Choose the best of the stopped candidates, if none was finished."""
    stopped = [trial for trial in trials if trial.stopped]
    simple = sorted(stopped, key=lambda trial: _complexity(trial.name))
    best = max(simple, key=lambda trial: trial.accuracy)
    which = "the best of those that were stopped" if len(stopped) > 1 else "which was stopped"
    return best.name, (
        f"No training was finished within the time limit; {best.name}, {which}, was chosen, with "
        f"{_describe_accuracy(best)}."
    )


def _describe_accuracy(trial: Trial) -> str:
    """Return the accuracy, the number of rows it is measured on, and the training time."""
    rows = 0 if trial.correct is None else len(trial.correct)
    over = trial.over or describe_tolerances(TOLERANCES)
    return (
        f"mean {trial.title} {over} on {rows} validation rows, {trial.accuracy:.4f} in "
        f"{trial.seconds:.1f} s"
    )


def describe_tolerances(tolerances: Floats) -> str:
    """Say at which tolerances candidates are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.estimators.trials import describe_tolerances
    >>> describe_tolerances(np.array([0.05]))
    'at tolerance 0.05'
    """
    if len(tolerances) == 1:
        return f"at tolerance {tolerances[0]:g}"
    return f"over tolerances {tolerances[0]:g} to {tolerances[-1]:g}"


def to_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """Return a line for each candidate, in the given order, with figures of the finished ones."""
    columns = ["accuracy", "difference", "error", "seconds", "note"]
    if not trials:
        return pd.DataFrame(columns=columns, index=pd.Index([], name="candidate"))
    known = [t.correct for t in trials if t.correct is not None and t.finished]
    best = max(known, key=lambda correct: float(correct.mean()), default=None)
    lines = {}
    for t in trials:
        seconds = np.nan if t.correct is None else t.seconds
        if t.correct is None or best is None or t.stopped:
            lines[t.name] = (np.nan, np.nan, np.nan, seconds, t.message)
            continue
        off = t.correct - best
        error = float(off.std(ddof=1)) / len(off) ** 0.5 if len(off) > 1 else 0.0
        figures = t.accuracy, POINTS * float(off.mean()), POINTS * error
        lines[t.name] = (*figures, seconds, t.message)
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return frame.rename_axis("candidate")
