"""A model's card: what it decides, on which rows it was calibrated, what it can't promise.

Every figure is read off the model's frontier; nothing is said that wasn't measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from html import escape
from typing import Any

from sklearn.pipeline import Pipeline

from fairdial.errors import CannotCertifyError, InfeasibleToleranceWarning
from fairdial.frontier import Frontier
from fairdial.methods.network import Network
from fairdial.points import Point

TOLERANCES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
FREE = 1.0  # a tolerance that binds nothing
CONFIDENCE = 0.95
CRITERIA = {
    "demographic_parity": "Demographic parity: of all rows, the share that gets the positive label "
    "(the selection rate) is to be alike in all groups.",
    "equal_opportunity": "Equal opportunity: of the rows whose true label is positive, the share "
    "that gets the positive label (the true positive rate) is to be alike in all groups.",
    "predictive_equality": "Predictive equality: of the rows whose true label is negative, the "
    "share that gets the positive label (the false positive rate) is to be alike in all groups.",
}
METHODS = {
    "FairBayes": "scores each row by {scorer}, and selects those above a threshold of their "
    "group; the dial moves the thresholds",
    "GFB": "scores each row by a network that was trained for the dial, and selects those above "
    "a threshold of their group; the dial moves the thresholds",
    "YOTO": "is one network that is told how much the gap weighs; the dial chooses the weight",
    "EPO": "is a network for each of several proportions of prediction loss and gap; the dial "
    "chooses among them",
    "FairBiNN": "is a network for each of several weights of the gap; the dial chooses among them",
}
GROUPS_NEEDED = """\
- Every prediction needs the row's group: decisions depend on it. Whether that is allowed in your
  case is a legal question; nothing here is legal advice.
"""
LIMITS = """\
- Accuracy, rates and gaps above are those of the calibration rows. They tell of new rows that come
  from the same population in the same way, and of no others: if people, data or labels drift, they
  no longer hold. Measure again, and calibrate on fresh rows.
- Where no confidence is stated, a gap on new rows above the tolerance is nothing unusual: where the
  dial holds it at the tolerance, it lies above about as often as below, and more often where there
  are more groups or settings.
- Only the gap of the named criterion is held; gaps of other rates may be larger.
- Labels are taken as they are: if they are biased, so are these figures.
"""


def model_card(model: Any) -> str:
    """The card of a fitted estimator, as Markdown.

    Parameters
    ----------
    model : DialClassifier
        Fitted; what isn't known before calibration is said to be missing.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.methods.card import model_card
    >>> sample = make_gaussian(5000, random_state=0)
    >>> dial = FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> dial = dial.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> print(model_card(dial).splitlines()[0])
    # Model card: FairBayes, demographic parity
    """
    frontier: Frontier | None = getattr(model, "frontier_", None)
    name = getattr(model.criterion, "name", model.criterion)
    criterion = name if frontier is None else frontier.criterion.name
    parts = [f"# Model card: {type(model).__name__}, {criterion.replace('_', ' ')}"]
    parts += [f"## What it decides\n\n{_decides(model)}", f"## Training\n\n{_training(model)}"]
    if frontier is None:
        parts += ["## Not calibrated\n\nIt has no dial yet: `calibrate` finds it on held-out rows."]
    else:
        parts += [
            f"## Calibration rows\n\n{_rows(frontier, model.classes_[1])}",
            f"## Criterion\n\n{_criterion(frontier)}",
            f"## Positions of the dial\n\n{_positions(frontier)}",
            f"## Gaps on new rows\n\n{_promises(frontier)}",
        ]
    one = frontier is not None and len(frontier.groups) == 1
    limits = LIMITS if one else GROUPS_NEEDED + LIMITS
    parts += [f"## Limits\n\n{limits.strip()}", f"## How to load it\n\n{_loading(model)}"]
    return "\n\n".join(parts) + "\n"


def _decides(model: Any) -> str:
    negative, positive = (_code(label) for label in model.classes_.tolist())
    how = METHODS[type(model).__name__].format(scorer=_scorer(model))
    text = (
        f"It gives each row one of two labels, {positive} (the positive one: the row is selected) "
        f"or {negative}. It {how}. The dial rests at tolerance {model.tolerance:g}; any other can "
        "be asked for with each prediction."
    )
    names, column = getattr(model, "feature_names_in_", None), model.sensitive_column
    if names is not None:
        text += f"\n\nFeatures: {', '.join(_code(name) for name in names)}."
    if column is not None:
        columns = column if isinstance(column, (list, tuple)) else [column]
        told = ", ".join(_code(name) for name in columns)
        sees = "sees too" if _sees_groups(model) else "doesn't see"
        text += f"\n\nThe group is read from the column {told}, which the scorer {sees}."
    return text


def _sees_groups(model: Any) -> bool:
    """Whether scores of the same features may differ between groups."""
    own = hasattr(model, "predict_method")  # FairBayes; else a network
    parts = model._parts() if own else [model.network or Network()]
    return getattr(model, "per_group", False) or any(
        isinstance(part, Network) and not (part.is_shared and part.group_input == "none")
        for part in parts
    )


def _scorer(model: Any) -> str:
    """What scores, of FairBayes."""
    if not hasattr(model, "predict_method"):
        return ""
    names = [_scorer_name(part) for part in model._parts()]
    name = names[0] if len(names) == 1 else f"the average of {', '.join(names)}"
    if model.cv is not None:
        return f"{name}, averaged over {model.cv} folds"
    return f"{name}, one for each group" if model.per_group else name


def _scorer_name(part: Any) -> str:
    """A network, a classifier's type, or those of a pipeline's steps."""
    if isinstance(part, Network):
        return "a plainly trained network"
    if not isinstance(part, Pipeline):
        return f"`{type(part).__name__}`"
    steps = [f"`{type(step).__name__}`" for _, step in part.steps if hasattr(step, "fit")]
    return f"a pipeline of {', '.join(steps)}"


def _training(model: Any) -> str:
    """Which method was asked for or chosen, on how many rows it was trained, and when."""
    told = getattr(model, "training_", None)
    if told is None:
        return "Its scorer was trained elsewhere: on how many rows, and when, is not known here."
    asked = "" if told["asked"] is None else f" (`--method {told['asked']}`)"
    text = (
        f"Its scorer{asked} was trained on {told['rows']:,} rows; training ended {told['ended']} "
        "(UTC)."
    )
    if "missing_group" in told:
        text += f" Rows that don't tell their group are {_code(told['missing_group'])}."
    if "chosen" in told:
        why = escape(told["why"], quote=False)
        text += f"\n\nAutoDial took {_code(told['chosen'])}. {why}"
    return text


def _rows(frontier: Frontier, positive: Any) -> str:
    rows, counted = frontier.rows, frontier.counted
    text = f"The dial was set on {int(rows.sum()):,} rows."
    head = ["group", "rows", "rows that count for the criterion"]
    lines = [
        [_cell(group), f"{int(rows[:, a].sum()):,}", f"{int(counted[a]):,}"]
        for a, group in enumerate(frontier.groups)
    ]
    if len(rows) == 2:
        head.append(f"share with label {_cell(positive)}")
        for a, line in enumerate(lines):
            line.append(f"{rows[1, a] / rows[:, a].sum():.4f}")
    else:
        text += " Their labels were not known, so there is no accuracy."
    return f"{text}\n\n{_table(head, lines)}"


def _criterion(frontier: Frontier) -> str:
    return (
        f"{CRITERIA[frontier.criterion.name]} The gap is the highest minus the lowest of these "
        "rates over the groups; the tolerance is the largest gap that is wished for."
    )


def _positions(frontier: Frontier) -> str:
    """The dial at some tolerances, on the calibration rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        points = [frontier.at(wish) for wish in (*TOLERANCES, FREE)]
    head = ["tolerance", "accuracy", "gap", *(f"selected: {_cell(g)}" for g in frontier.groups)]
    lines = []
    for point in points:
        wish = "free" if point.tolerance == FREE else f"{point.tolerance:.2f}"
        accuracy = "unknown" if point.accuracy is None else f"{point.accuracy:.4f}"
        gap = f"{point.gap:.4f}" if point.feasible else f"{point.gap:.2g} (not reached)"
        lines.append([wish, accuracy, gap, *(f"{rate:.4f}" for rate in point.selection_rate)])
    kind = "setting" if frontier.measured else "state"
    kind += "" if len(frontier) == 1 else "s"
    text = f"Measured on the calibration rows, {len(frontier):,} {kind} in all; free: no tolerance."
    alike = constant_decision(points)
    if alike is not None:
        text += f" **It selects {alike} of these rows at every tolerance below.**"
    if not all(point.feasible for point in points):
        text += " Not reached: no state is within the tolerance, the smallest gap is taken."
    return f"{text}\n\n{_table(head, lines)}"


def constant_decision(points: Sequence[Point]) -> str | None:
    """Whether every position selects no row ("none"), or every one ("all"); else None."""
    shares = {point.selected.sum() / point.rows.sum() for point in points}
    return {(0.0,): "none", (1.0,): "all"}.get(tuple(shares))


def _promises(frontier: Frontier) -> str:
    """What can be said of new rows, or what it would need."""
    if len(frontier.groups) == 1:
        return "There is one group, and so no gap."
    try:
        margin = frontier.margin(CONFIDENCE)
    except CannotCertifyError as error:
        return f"None can be promised: {error}"
    text = (
        f"With confidence {CONFIDENCE:.0%}, over the draw of the calibration rows, and for new "
        "rows from the same population. "
    )
    if frontier.beforehand:
        text += "Each line is for one tolerance that was chosen before looking at these rows. "
    else:
        text += "All lines hold at once. "
    kind = "every setting that was fixed beforehand" if frontier.measured else "every position"
    text += f"For {kind} at once, gaps are at most {margin:.4f} above those measured."
    lines = [_promise(frontier, wish) for wish in TOLERANCES]
    return f"{text}\n\n{_table(['tolerance', 'gap on new rows', 'accuracy'], lines)}"


def _promise(frontier: Frontier, wish: float) -> list[str]:
    try:
        point: Point = frontier.at(wish, confidence=CONFIDENCE)
    except CannotCertifyError as error:
        least, rows = error.smallest_tolerance, error.rows_needed
        told = f"{'no number of' if rows is None else f'about {rows:,}'} calibration rows would do"
        can = "none can" if least is None else f"{least:.4f} can"
        return [f"{wish:.2f}", f"can't be promised ({can}); {told}", ""]
    accuracy = "unknown" if point.accuracy is None else f"{point.accuracy:.4f}"
    return [f"{wish:.2f}", f"at most {point.certified_gap:.4f}", accuracy]


def _prediction(model: Any) -> str:
    """The call of predict, with the columns that X must have."""
    column = model.sensitive_column
    names = [] if column is None else column if isinstance(column, (list, tuple)) else [column]
    groups = "" if names else "sensitive_features=groups, "
    if not hasattr(model, "feature_names_in_"):
        return f"model.predict(X, {groups}tolerance=0.05)"
    listed = "".join(f", {' '.join(repr(name).split())}" for name in names)
    return (
        f"columns = [*model.feature_names_in_{listed}]; "
        f"model.predict(X[columns], {groups}tolerance=0.05)"
    )


def _loading(model: Any) -> str:
    own = _has_own_trunk(model)
    call = f'fairdial.load("this folder"{", trunk=make_trunk" if own else ""})'
    text = f"```python\nimport fairdial\n\nmodel = {call}\n```"
    if own:
        text += "\n\nThe trunk is a module of your own: its weights are here, its code is not."
    text += f"\n\nThen `{_prediction(model)}`."
    if hasattr(model, "feature_names_in_"):
        text += " `X` may have more columns, in any order: `columns` are those that it needs."
    if hasattr(model, "estimator_"):
        text += (
            " Types that are not on the library's list are named by an error; `trusted=[...]` "
            "allows them."
        )
    return text


def _has_own_trunk(model: Any) -> bool:
    nets = [model.net_] if hasattr(model, "net_") else getattr(model, "nets_", [])
    modules = [getattr(net.trunk, "nets", None) for net in nets[:1]]
    return any(
        stack is not None and not type(stack[0]).__module__.startswith("fairdial.")
        for stack in modules
    )


# ---- Markdown ----------------------------------------------------------------------------------


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: Hashable) -> str:
    """A name as the cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _code(value: Any) -> str:
    """A name as code; quotes show what is text."""
    return f"`{' '.join(repr(value).split())}`".replace("|", "\\|")
