"""The training monitor: what the figures of the epochs say about a training. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairdial._arrays import Floats

# Limits of the residual's median over epochs. One epoch's residual is a single batch's: too noisy.
DIVERGING = 1.5  # above: w diverges
INERT = 0.95  # above: w is no better than 0
COLLAPSED = 0.5  # share of the unconstrained gap after the warm start
SWING = 0.006  # smaller swings of accuracy are harmless
MIN_EPOCHS = 8  # fewer say too little
NOISE = 1.0 / math.sqrt(math.pi)  # mean swing of independent normal draws, in deviations
MARGIN = 1.5  # of the noise
MIN_MINORITY = 0.2  # share of the rarer label; below, the same decision for everybody may be best
MIN_MINORITY_COUNT = 30


class ValidationRows(NamedTuple):
    """What the monitor needs to know of the validation rows."""

    n: float  # rows, or the equivalent number of rows without weights
    minority: float  # share of all labels but the most common one


def oscillation(history: pd.DataFrame) -> float:
    """Return the mean absolute change of validation accuracy from one epoch to the next.

    Parameters
    ----------
    history : DataFrame
        ``history_`` of a network method: by epoch, or by run and epoch.

    Returns
    -------
    float
        The mean over epochs, and over runs if there are several; NaN without two epochs.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial.nn.monitor import oscillation
    >>> history = pd.DataFrame({"accuracy": [0.80, 0.70, 0.80, 0.82]}, [1, 2, 3, 4])
    >>> round(oscillation(history), 3)
    0.073
    """
    runs = [np.abs(np.diff(accuracy)) for accuracy in _accuracies(history) if len(accuracy) > 1]
    return float(np.mean([changes.mean() for changes in runs])) if runs else math.nan


def swing(accuracy: Floats) -> float:
    """Return how far accuracy goes back and forth from epoch to epoch, on average.

    Of two changes in a row, the smaller one counts where the second takes back the first, and
    nothing otherwise: accuracy that only rises doesn't swing.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.nn.monitor import swing
    >>> swing(np.array([0.5, 0.7, 0.8, 0.8])), round(swing(np.array([0.8, 0.7, 0.8, 0.7])), 3)
    (0.0, 0.1)
    """
    changes = np.diff(accuracy)
    if len(changes) < 2:
        return 0.0
    before, after = changes[:-1], changes[1:]
    back = np.where(before * after < 0.0, np.minimum(np.abs(before), np.abs(after)), 0.0)
    return float(back.mean())


def findings(
    history: pd.DataFrame,
    best_epoch: int | Sequence[int],
    settings: Mapping[str, Any],
    rows: ValidationRows,
) -> list[str]:
    """Return what went wrong in a training, and what to change.

    Parameters
    ----------
    history : DataFrame
        Figures by epoch, or by run and epoch.
    best_epoch : int or list of int
        The selected epoch, of each run if there are several.
    settings : mapping
        Parameters of estimator and network.
    rows : ValidationRows
        The validation rows.
    """
    found = [*_constant(history, best_epoch, rows), *_oscillates(history, settings, rows)]
    bilevel = "warm" in history and settings.get("weight", 1.0) < 1.0
    if not bilevel:
        return found
    return [*_ineffective(history, int(np.max(best_epoch)), settings, rows), *found]


def _accuracies(history: pd.DataFrame, *, trained: bool = False) -> list[Floats]:
    """Return the validation accuracy of each run by epoch; ``trained``: after the warm start."""
    if "accuracy" not in history:
        return []
    if trained and "warm" in history:
        history = history[history["warm"] == 0]
    accuracy = history["accuracy"].astype(float)
    if history.index.nlevels == 1:
        return [accuracy.to_numpy()]
    return [run.to_numpy() for _, run in accuracy.groupby(level=0)]


def _oscillates(
    history: pd.DataFrame, settings: Mapping[str, Any], rows: ValidationRows
) -> Iterator[str]:
    """Compare swings with those of accuracies on as many rows, drawn anew for every epoch.

    Validation rows are always the same, and a settled net changes few decisions between epochs: its
    swings are far smaller.
    """
    if settings.get("selection") == "random":  # another weight in every epoch
        return
    runs = [run for run in _accuracies(history, trained=True) if len(run) >= MIN_EPOCHS]
    if not runs:
        return
    size, middle = np.median([(swing(run), np.median(run)) for run in runs], axis=0)
    noise = NOISE * math.sqrt(max(middle * (1.0 - middle), 0.0) / max(rows.n, 1.0))
    limit = max(SWING, MARGIN * noise)
    if size <= limit:
        return
    changes = ["lower `learning_rate`", "raise `batch_size`"]
    if settings.get("average", 1.0) is None:
        changes.append("set `average`")
    late = not settings.get("average_first", True)
    if late or settings.get("moving_average", 1.0) < 1.0:
        changes.insert(0, "set `moving_average=1` and `average_first=True`")
    yield (
        f"validation accuracy goes back and forth by {size:.3f} from epoch to epoch, where settled "
        f"training stays below {limit:.3f} on {rows.n:.0f} rows; "
        f"{', '.join(changes[:-1])} or {changes[-1]}"
    )


def _constant(
    history: pd.DataFrame, best_epoch: int | Sequence[int], rows: ValidationRows
) -> Iterator[str]:
    """Report a net that decides the same for all rows; of several, all of them."""
    name = "selection_rate" if "selection_rate" in history else "selection_rate_loose"
    common = rows.minority >= MIN_MINORITY and rows.n * rows.minority >= MIN_MINORITY_COUNT
    epochs = history.index.get_level_values(-1)
    if name not in history or not common or epochs.max() < MIN_EPOCHS:
        return
    rates = history[name].astype(float)
    if history.index.nlevels > 1:
        assert isinstance(best_epoch, Sequence)
        runs = [run.droplevel(0) for _, run in rates.groupby(level=0)]
        chosen = [run.loc[epoch] for run, epoch in zip(runs, best_epoch, strict=True)]
    else:
        chosen = [rates.loc[int(np.max(best_epoch))]]
    if all(rate in (0.0, 1.0) for rate in chosen):
        yield (
            "the dial collapsed: without a tolerance, every validation row gets the same decision, "
            f"although {rows.minority:.0%} have the rarer label; train longer (`epochs`) or change "
            "`learning_rate`"
        )


def _ineffective(
    history: pd.DataFrame, best_epoch: int, settings: Mapping[str, Any], rows: ValidationRows
) -> Iterator[str]:
    """Report a bilevel part that didn't do what it is meant to do."""
    best = history.loc[best_epoch]
    if best["warm"] == 1:
        yield (
            f"training ended within the warm start ({len(history)} epochs), so this is plain "
            "training; raise `epochs` or lower `warm_epochs`"
        )
        return
    residual = history["aux_residual"].median() if "aux_residual" in history else 0.0
    solved = settings.get("aux") == "solve"  # on each batch: the next one's system differs
    if residual > DIVERGING:
        advice = "raise `batch_size`" if solved else "lower `aux_rate` or set `aux='solve'`"
        yield (
            f"the auxiliary variable is far from solving its system (median residual "
            f"{residual:.2f}; 0: solved, 1: no effect). The model is usable, but its bilevel part "
            f"didn't work; {advice}"
        )
    elif residual > INERT and not solved:
        yield (
            f"the auxiliary variable is no better than 0 (median residual {residual:.2f}; 0: "
            "solved, 1: no effect). The model is usable, but its bilevel part didn't work: the "
            "variable is inert, or noisy if `aux_rate` is high; `aux='solve'` solves its system"
        )
    if "gap" in history and history["warm"].any():
        warm = history["gap"][history["warm"] == 1].iloc[-1]
        noise = MARGIN / math.sqrt(max(rows.n, 1.0))  # two rates near 0.5, on half the rows each
        if best["gap"] < COLLAPSED * warm and warm - best["gap"] > noise:
            yield (
                f"the unconstrained gap collapsed from {warm:.3f} to {best['gap']:.3f}, which "
                "costs accuracy at loose tolerances; raise `weight`"
            )
