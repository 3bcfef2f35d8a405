"""Candidates on validation rows: which of them is taken, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.methods.candidates import ORDER_OF_SIMPLICITY

Floats = NDArray[np.float64]

TOLERANCES = np.linspace(0.01, 0.2, 20)  # whose accuracies are averaged; 0 is reached by luck only
POINTS = 100.0
LONGEST = 200  # characters of what is told of a failure
CAUTION = (
    " Such figures are for choosing only: the dials were found on the same rows, which makes them "
    "optimistic, and no estimate for new rows."
)
NOT_TRIED, FAILED = "not tried", "failed"  # how notes begin


@dataclass(frozen=True)
class Trial:
    """A candidate on the validation rows."""

    name: str
    right: Floats | None  # (n,) by row; None: not tried
    seconds: float
    note: str = ""
    error: str = ""  # in full, for those who train: it may quote rows, and is never saved
    stopped: bool = False  # by the time: half-trained, and not compared with others
    possible: bool = True  # on these rows

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end, and can be compared."""
        return self.right is not None and not self.stopped

    @property
    def told(self) -> str:
        """The note, with the error in full where there is one."""
        return f"{self.note}: {self.error}" if self.error else self.note

    @property
    def accuracy(self) -> float:
        """The mean over rows and tolerances; NaN where it wasn't tried."""
        return float("nan") if self.right is None else float(self.right.mean())


def say_error(error: Exception) -> str:
    """What went wrong, in one line of printable characters."""
    told = "".join(c if c.isprintable() else " " for c in str(error))
    return textwrap.shorten(told, LONGEST)


def choose(trials: Sequence[Trial]) -> tuple[str, str]:
    """The simplest candidate within a standard error of the best; and why, in words.

    Those that were stopped are not compared; the best of them is taken where none was finished.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.methods.trials import Trial, choose
    >>> good, bad = np.tile([1.0, 1.0, 0.0], 100), np.tile([1.0, 0.0, 0.0], 100)
    >>> choose([Trial("logistic", bad, 1.0), Trial("network", good, 9.0)])[0]
    'network'
    """
    finished = [trial for trial in trials if trial.finished]
    if len(finished) > 1:
        taken, told = _compare(finished)
    elif finished:
        taken, told = finished[0].name, _say_only(finished[0], trials)
    else:
        taken, told = _take_stopped(trials)
    told += CAUTION + say_notes(trials)
    if len(finished) > 1:
        told += f" So {taken} was taken."
    elif not finished:
        told += " The final training has no limit of time."
    return taken, told


def say_notes(trials: Sequence[Trial]) -> str:
    """What is to be said of each, as the end of a text."""
    return "".join(f" {t.name}: {t.note.removesuffix('.')}." for t in trials if t.note)


def _compare(trials: Sequence[Trial]) -> tuple[str, str]:
    """The simplest of several finished ones that are about as good as the best."""
    table = to_frame(trials)
    close = table[table["difference"] >= -table["error"]]
    best, taken = str(table["accuracy"].idxmax()), min(close.index, key=ORDER_OF_SIMPLICITY.index)
    others = "; ".join(
        f"{name} {row['difference']:+.2f} ± {row['error']:.2f} points, {row['seconds']:.1f} s"
        for name, row in table.drop(index=best).iterrows()
    )
    first = next(trial for trial in trials if trial.name == best)
    told = f"{best} has the best {_say_accuracy(first)} ({others})."
    if taken != best:
        told += f" {taken} is within one standard error of it, and the simplest of those that are."
    return str(taken), told


def _say_only(only: Trial, trials: Sequence[Trial]) -> str:
    """Why there was nothing to compare the only finished one with."""
    others = [trial for trial in trials if trial is not only and trial.possible]
    if all(trial.note.startswith(NOT_TRIED) for trial in others):
        why = "that was tried within the time"
    elif all(trial.note.startswith(FAILED) for trial in others):
        why = "that could be trained"
    else:
        why = "whose training was finished"
    return f"{only.name} is the only one {why}, with {_say_accuracy(only)}."


def _take_stopped(trials: Sequence[Trial]) -> tuple[str, str]:
    """The best of those that the time has stopped, where none was finished."""
    stopped = [trial for trial in trials if trial.stopped]
    simple = sorted(stopped, key=lambda trial: ORDER_OF_SIMPLICITY.index(trial.name))
    best = max(simple, key=lambda trial: trial.accuracy)
    which = "the best of those that were stopped" if len(stopped) > 1 else "which was stopped"
    return best.name, (
        f"No training was finished within the time: {best.name} is taken, {which}, with "
        f"{_say_accuracy(best)}."
    )


def _say_accuracy(trial: Trial) -> str:
    """How good it is, on how many rows, and how long that took."""
    rows = 0 if trial.right is None else len(trial.right)
    return (
        f"mean accuracy over tolerances {TOLERANCES[0]:g} to {TOLERANCES[-1]:g} on {rows} "
        f"validation rows, {trial.accuracy:.4f} in {trial.seconds:.1f} s"
    )


def to_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """A line a candidate, in the order in which they are given; figures of those finished."""
    columns = ["accuracy", "difference", "error", "seconds", "note"]
    if not trials:
        return pd.DataFrame(columns=columns, index=pd.Index([], name="candidate"))
    known = [t.right for t in trials if t.right is not None and t.finished]
    best = max(known, key=lambda right: float(right.mean()), default=None)
    lines = {}
    for t in trials:
        seconds = np.nan if t.right is None else t.seconds
        if t.right is None or best is None or t.stopped:
            lines[t.name] = (np.nan, np.nan, np.nan, seconds, t.told)
            continue
        off = t.right - best
        error = float(off.std(ddof=1)) / len(off) ** 0.5 if len(off) > 1 else 0.0
        figures = t.accuracy, POINTS * float(off.mean()), POINTS * error
        lines[t.name] = (*figures, seconds, t.told)
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return frame.rename_axis("candidate")
