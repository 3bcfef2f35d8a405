"""Model cards: what a model decides, how it was calibrated, and what its limits are.

Every figure comes from the model's frontier.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Sequence
from html import escape
from typing import Any

from sklearn.pipeline import Pipeline

from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.demands import Demand
from fairdial.core.frontier import Frontier
from fairdial.core.objectives import Objective
from fairdial.core.point import Point, number_of_rows
from fairdial.core.rising import rising_frontier
from fairdial.core.searched import SearchedPoints
from fairdial.errors import CannotCertifyError, FairdialWarning
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.fairbayes import FairBayes
from fairdial.io.settings import EstimatorSettings
from fairdial.nn.network import Network
from fairdial.registry import method_of

MARKUP = re.compile(r"[|`\[]")  # what a cell needs a backslash before
TOLERANCES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
UNCONSTRAINED = 1.0  # a tolerance that every gap is within
CONFIDENCE = 0.95
SEES = {True: "also sees", False: "doesn't see", None: "may see"}
GROUPS_NEEDED = """\
- Every prediction needs the row's group: decisions depend on it. Whether that is allowed in your
  case is a legal question; nothing here is legal advice.
"""
BLIND = """\
- Predictions don't need the row's group, but depend on how likely the features make it. Whether
  that is allowed in your case is a legal question; nothing here is legal advice.
"""
LIMITS = """\
- Accuracy, rates and gaps above were measured on the calibration rows. They apply to new rows that
  come from the same population in the same way. If people, data or labels drift, they no longer
  hold: measure again, and calibrate on fresh rows.
- Without a stated confidence, a tolerance holds on new rows only about half the time, and less
  often with more groups or settings.
- Only the gap of the named criterion is controlled; gaps of other rates may be larger.
- Labels are taken as given: if they are biased, so are these figures.
"""


def model_card(model: DialClassifier, *, sees_group: bool | None = None) -> str:
    """Return the card of a fitted estimator, as Markdown.

    Parameters
    ----------
    model : DialClassifier
        Fitted; calibrated or not.
    sees_group : bool, optional
        Whether the scorer knows a row's group; None if that is unknown.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.io.card import model_card
    >>> sample = make_gaussian(5000, random_state=0)
    >>> dial = FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> dial = dial.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> print(model_card(dial).splitlines()[0])
    # Model card: FairBayes, demographic parity
    """
    frontier: Frontier | None = getattr(model, "frontier_", None)
    criterion = (
        find_criterion(model.criterion).name if frontier is None else frontier.criterion.name
    )
    parts = [f"# Model card: {type(model).__name__}, {criterion.replace('_', ' ')}"]
    parts += [
        f"## What it decides\n\n{_decides(model, sees_group)}",
        f"## Training\n\n{_training(model)}",
    ]
    if frontier is None:
        parts += ["## Not calibrated\n\nCall `calibrate` with held-out rows before predicting."]
    else:
        parts += [
            f"## Calibration rows\n\n{_rows(frontier, model.classes_)}",
            f"## Criterion\n\n{_criterion(frontier)}",
            f"## At the default tolerance\n\n{_default(frontier, model.default_tolerance)}",
            f"## Operating points\n\n{_operating_points(frontier)}",
            f"## Gaps on new rows\n\n{_certified_gaps(frontier)}",
        ]
    one = frontier is not None and len(frontier.groups) == 1
    needed = BLIND if getattr(model, "blind", False) else GROUPS_NEEDED
    limits = LIMITS if one else needed + LIMITS
    parts += [f"## Limits\n\n{limits.strip()}", f"## How to load it\n\n{_loading(model)}"]
    return "\n\n".join(parts) + "\n"


def _decides(model: Any, sees_group: bool | None) -> str:
    labels = [_code(label) for label in model.classes_.tolist()]
    method = method_of(type(model))
    how = "" if method is None else f" It {method.decides.format(scorer=_scorer(model))}."
    if getattr(model, "blind", False):
        how = (
            f" It scores each row by {_scorer(model)}, estimates the probability of each group "
            "from the same features, and selects rows whose utility exceeds the prices of these "
            "groups; the tolerance sets the prices."
        )
    what = f"two labels, {labels[1]} (the positive one: the row is selected) or {labels[0]}"
    if len(labels) > 2:
        what = f"{len(labels)} labels: {', '.join(labels)}"
        how = (
            f" It scores each row by {_scorer(model)}, and decides for the class with the largest "
            "probability minus the price of the class in the row's group; the tolerance sets the "
            "prices."
        )
    text = (
        f"It gives each row one of {what}.{how} The default tolerance is "
        f"{model.default_tolerance:g}; each prediction can use another."
    )
    names, column = getattr(model, "feature_names_in_", None), model.sensitive_column
    if names is not None:
        text += f"\n\nFeatures: {', '.join(_code(name) for name in names)}."
    if column is not None:
        columns = column if isinstance(column, (list, tuple)) else [column]
        names = ", ".join(_code(name) for name in columns)
        needed = " Predicting doesn't need it." if getattr(model, "blind", False) else ""
        text += f"\n\nGroup column: {names}. The scorer {SEES[sees_group]} it.{needed}"
    return text


def _scorer(model: DialClassifier) -> str:
    """Return a description of the scorer."""
    if not isinstance(model, FairBayes):
        estimators = getattr(model.scorer_, "estimators", [model.scorer_])
        return _scorer_name(estimators[0])
    names = [_scorer_name(part) for part in model._parts()]
    name = names[0] if len(names) == 1 else f"the average of {', '.join(names)}"
    if model.cv is not None:
        return f"{name} (averaged over {model.cv} folds)"
    return f"{name} (one for each group)" if model.per_group else name


def _scorer_name(part: Any) -> str:
    """Return "a network", a classifier's type, or the types of a pipeline's steps."""
    if isinstance(part, Network):
        return "a network with plain training"
    if isinstance(part, EstimatorSettings):
        steps = part.steps
    elif isinstance(part, Pipeline):
        steps = [type(step).__name__ for _, step in part.steps if hasattr(step, "fit")]
    else:
        steps = [type(part).__name__]
    names = ", ".join(f"`{name}`" for name in steps)
    return names if len(steps) == 1 else f"a pipeline of {names}"


def _training(model: Any) -> str:
    """Return the method, the number of training rows, and when training ended."""
    training = getattr(model, "training_", None)
    if training is None:
        return "The scorer was trained elsewhere; when, and on how many rows, is unknown."
    asked = "" if training["asked"] is None else f" (`--method {training['asked']}`)"
    text = (
        f"The scorer{asked} was trained on {training['rows']:,} rows; training ended "
        f"{training['ended']} (UTC)."
    )
    if "missing_group" in training:
        text += f" Rows without a group belong to {_code(training['missing_group'])}."
    if "chosen" in training:
        why = escape(training["why"], quote=False)
        text += f"\n\nAutoDial chose {_code(training['chosen'])}. {why}"
    return text


def _rows(frontier: Frontier, classes: Any) -> str:
    rows, eligible = frontier.counts, frontier.eligible
    text = f"The model was calibrated on {number_of_rows(rows)} rows."
    head = ["group", "rows", "rows eligible for the criterion"]
    lines = [
        [_cell(group), number_of_rows(rows[:, a]), number_of_rows(eligible[a])]
        for a, group in enumerate(frontier.groups)
    ]
    if frontier.has_labels:
        for c, name in enumerate(classes.tolist()):
            if c == 0 and frontier.classes is None:
                continue  # the rest is positive
            head.append(f"share with label {_cell(name)}")
            for a, line in enumerate(lines):
                line.append(f"{rows[c, a] / rows[:, a].sum():.4f}")
    else:
        text += " Their labels are unknown, so there is no accuracy."
    return f"{text}\n\n{_table(head, lines)}"


def _criterion(frontier: Frontier) -> str:
    """Return what the thresholds solve: demands, objective, budget, and how rows may move."""
    problem, criterion = frontier.problem, frontier.criterion
    text = criterion.description
    if criterion.is_simple:
        text += (
            " The gap is the difference between the highest and the lowest of these rates; the "
            "tolerance is the largest allowed gap."
        )
    else:
        lines = "\n".join(f"- {demand_text(demand)}" for demand in criterion.demands)
        text += f"{' ' if text else ''}At a tolerance `d`:\n\n{lines}\n\n" + (
            "The gap is the smallest tolerance at which all of this holds."
        )
    facts = [f"Objective: {_objective(problem.objective)}."] if not frontier.is_family else []
    if problem.budget is not None:
        how = "As many as possible, up to" if problem.budget.exact else "At most"
        facts.append(f"Budget: {how.lower()} {problem.budget.share:.4g} of all rows are selected.")
    if problem.rising:
        facts.append("Leveling up: no row loses a positive decision.")
    if frontier.certificate == "weighted":
        facts.append("Rows are weighted: numbers of rows below are sums of weights.")
    facts += [] if frontier.is_family else [_movement(frontier)]
    return "\n\n".join([text, *facts])


def demand_text(demand: Demand) -> str:
    """Return a demand at a tolerance ``d`` as a sentence, in Markdown.

    Examples
    --------
    >>> from fairdial import minimum
    >>> from fairdial.io.card import demand_text
    >>> demand_text(minimum("true_positive_rate", 0.8))
    'True positive rate: at least 0.8 in every group.'
    """
    scale = float(demand.scale)
    room = "d" if scale == 1 else f"{scale:.4g} d"
    limit = {
        "difference": f"highest minus lowest group at most `{room}`",
        "ratio": f"lowest group at least `1 - {room}` times the highest",
        "minimum": f"at least `{demand.level:g} - {room}` in every group",
        "maximum": f"at most `{demand.level:g} + {room}` in every group",
    }[demand.spread]
    if not scale:
        limit = {
            "difference": "equal in all groups",
            "ratio": "equal in all groups",
            "minimum": f"at least {demand.level:g} in every group",
            "maximum": f"at most {demand.level:g} in every group",
        }[demand.spread]
    name = demand.rate.name.replace("_", " ").capitalize()
    within = f", within {_code(demand.within)}" if demand.within else ""
    return f"{name}{within}: {limit}."


def _objective(objective: Objective) -> str:
    if objective.name == "costs":
        return (
            f"lowest mean cost (false positive {objective.false_positive:g}, "
            f"false negative {objective.false_negative:g})"
        )
    return f"highest {objective.title}"


def _movement(frontier: Frontier) -> str:
    """Return whether rows may change back along the dial, and what a lottery promises."""
    if frontier.problem.randomize is not None:
        return (
            "A lottery decides near the thresholds, by a hash of the row: the same row always gets "
            "the same decision. The demands hold in expectation over the draws, not for every draw."
        )
    if frontier.classes is not None and frontier.nested:
        return "Along the dial, no row returns to a class that it left."
    if frontier.has_prices and not frontier.nested:
        return "Along the dial, rows may change their decision and change it back."
    if not frontier.nested:
        return (
            "The thresholds are the best ones at each tolerance. Along the dial, rows may change "
            "their decision and change it back."
        )
    loss = frontier.nested_loss
    cost = "" if loss is None else f" This costs at most {loss:.4f} of the objective."
    return f"Along the dial, each row changes its decision at most once.{cost}"


def _default(frontier: Frontier, tolerance: float) -> str:
    """Return every demand's gap and rates at the default tolerance, and the leveling-up answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        point = frontier.at(tolerance)
    several = frontier.criterion.has_groupings  # each demand may have groups of its own
    names = ["lowest", "highest"] if several else [_cell(group) for group in frontier.groups]
    head = ["demand", "gap", "allowed", *names]
    rates = point.rates.reshape(len(frontier.criterion.demands), -1)
    lines = []
    for demand, gap, line in zip(
        frontier.criterion.demands, point.gaps.values(), rates, strict=True
    ):
        allowed = f"{float(demand.scale) * tolerance:.4f}"
        found = line.tolist()
        if several:
            known = [rate for rate in found if rate == rate]
            found = [min(known), max(known)]
        shown = ["none" if rate != rate else f"{rate:.4f}" for rate in found]
        lines.append([_cell(demand.name), f"{gap:.4f}", allowed, *shown])
    text = f"Tolerance {tolerance:g}, on the calibration rows. {_figures(point)}"
    text += f"\n\n{_table(head, lines)}"
    rising = None if frontier.problem.rising else rising_frontier(frontier)
    return text if rising is None else f"{text}\n\n{_leveling_up(rising, tolerance, point)}"


def _figures(point: Point) -> str:
    found = [] if point.accuracy is None else [f"accuracy {point.accuracy:.4f}"]
    if point.problem.objective.name != "accuracy" and point.value is not None:
        found.append(f"{point.problem.objective.title} {point.value:.4f}")
    found.append(f"gap {point.gap:.4f}{'' if point.feasible else ' (not reached)'}")
    if point.classes is None:
        found.append(f"selected {point.selected.sum() / point.counts.sum():.4f}")
    text = ", ".join(found) + "."
    return text[0].upper() + text[1:]


def _leveling_up(rising: Frontier, tolerance: float, plain: Point) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        point = rising.at(tolerance)
    text = f"Leveling up, where no row loses a positive decision, would give: {_figures(point)}"
    lines = [
        [_cell(group), f"{one:.4f}", f"{other:.4f}"]
        for group, one, other in zip(
            plain.groups, plain.selection_rate, point.selection_rate, strict=True
        )
    ]
    head = ["group", "selected", "selected if nobody loses"]
    return f"{text}\n\n{_table(head, lines)}"


def _operating_points(frontier: Frontier) -> str:
    """Return a table of operating points on the calibration rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        points = [frontier.at(tolerance) for tolerance in (*TOLERANCES, UNCONSTRAINED)]
    shown = frontier.groups if frontier.classes is None else ()
    head = ["tolerance", "accuracy", "gap", *(f"selected: {_cell(g)}" for g in shown)]
    lines = []
    for point in points:
        unconstrained = point.tolerance == UNCONSTRAINED
        tolerance = "unconstrained" if unconstrained else f"{point.tolerance:.2f}"
        accuracy = "unknown" if point.accuracy is None else f"{point.accuracy:.4f}"
        gap = f"{point.gap:.4f}" if point.feasible else f"{point.gap:.2g} (not reached)"
        rates = point.selection_rate if shown else ()
        lines.append([tolerance, accuracy, gap, *(f"{rate:.4f}" for rate in rates)])
    kind = "setting" if frontier.is_family else "operating point"
    kind += "" if len(frontier) == 1 else "s"
    text = f"Measured on the calibration rows. There are {len(frontier):,} {kind} in all."
    if isinstance(frontier.points, SearchedPoints):
        text = "Measured on the calibration rows. Each tolerance is answered by a search."
    constant = constant_decision(points)
    if constant is not None:
        text += f" **It selects {constant} of these rows at every tolerance below.**"
    if not all(point.feasible for point in points):
        text += " Not reached: no gap is within the tolerance, and the smallest one is used."
    return f"{text}\n\n{_table(head, lines)}"


def constant_decision(points: Sequence[Point]) -> str | None:
    """Return "none" or "all" if every operating point selects no row, or every row; else None."""
    if points[0].classes is not None:
        return None
    shares = {point.selected.sum() / point.counts.sum() for point in points}
    return {(0.0,): "none", (1.0,): "all"}.get(tuple(shares))


def _certified_gaps(frontier: Frontier) -> str:
    """Return what can be certified for new rows, or what that would need."""
    if len(frontier.groups) == 1:
        return "There is only one group, so there is no gap."
    margin = None
    try:
        margin = frontier.margin(CONFIDENCE)
    except CannotCertifyError as error:
        if not frontier.can_certify:
            return f"Nothing can be certified: {error}"
    text = (
        f"These bounds hold with {CONFIDENCE:.0%} confidence over the draw of the calibration "
        "rows, for new rows from the same population. "
    )
    if frontier.needs_declared_tolerance:
        text += "Each line holds for a tolerance that was chosen before looking at these rows. "
    else:
        text += "All lines hold at once. "
    kind = "every predefined setting" if frontier.is_family else "every operating point"
    if margin is not None:
        text += f"For {kind} at once, gaps are at most {margin:.4f} above those measured."
    lines = [_certified_gap(frontier, tolerance) for tolerance in TOLERANCES]
    return f"{text}\n\n{_table(['tolerance', 'gap on new rows', 'accuracy'], lines)}"


def _certified_gap(frontier: Frontier, tolerance: float) -> list[str]:
    try:
        point: Point = frontier.at(tolerance, confidence=CONFIDENCE)
    except CannotCertifyError as error:
        least = error.smallest_tolerance
        smallest = "" if least is None else f" (smallest: {least:.4f})"
        needed = error.enough or "no sample size is enough"
        if error.group is not None:
            needed += f" ({_cell(error.group)} has {error.group_rows:,})"
        return [f"{tolerance:.2f}", f"not certified{smallest}; {needed}", ""]
    accuracy = "unknown" if point.accuracy is None else f"{point.accuracy:.4f}"
    return [f"{tolerance:.2f}", f"at most {point.certified_gap:.4f}", accuracy]


def _prediction(model: Any) -> str:
    """Return the call of predict, with the columns that X must have."""
    column = model.sensitive_column
    names = [] if column is None else column if isinstance(column, (list, tuple)) else [column]
    groups = "" if names else "sensitive_features=groups, "
    if getattr(model, "blind", False):
        names, groups = [], ""
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
        text += "\n\nThe trunk is your own module: its weights are here, its code is not."
    text += f"\n\nThen `{_prediction(model)}`."
    if hasattr(model, "feature_names_in_"):
        text += " `X` may have other columns, in any order; `columns` lists those that are needed."
    if hasattr(model, "estimator_"):
        text += (
            " If an error names types that are not on the library's list, `trusted=[...]` allows "
            "them."
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
    """Return a name as a table cell, without characters that Markdown, HTML or terminals obey."""
    plain = (x if x.isprintable() else repr(x)[1:-1] for x in " ".join(str(value).split()))
    return MARKUP.sub(r"\\\g<0>", "".join(plain)).replace("<", "&lt;")


def _code(value: Any) -> str:
    """Return a name as code; text is in quotes."""
    text = " ".join(repr(value).split()).replace("|", "\\|")
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(map(len, re.findall("`+", text))))  # longer than any in the text
    return f"{fence} {text} {fence}"
