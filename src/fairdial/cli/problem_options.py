"""Options that say what a dial solves: criteria, objective, budget, and how rows may move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli.options import Callback, Number
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier

OBJECTIVES = ("accuracy", "balanced_accuracy", "f1")
WEIGHTS = click.option(
    "--weights",
    metavar="COLUMN",
    help="Column of row weights, which isn't a feature; whole numbers stand for repeated rows.",
)
CONTROL = click.option(
    "--control",
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Column of strata: every demand holds within each of its values. It stays a feature, and "
    "predict doesn't need it for anything else; repeatable.",
)


@dataclass(frozen=True)
class ProblemOptions:
    """What was asked for; None and empty where nothing was.

    Attributes
    ----------
    criterion : str
        The criteria as one text, such as ``"equalized_odds+selection_rate<=0.4"``; "" if none.
    parameters : dict
        Constructor parameters of estimators with thresholds that differ from the defaults.
    ratio : bool
        Whether ratios are limited in place of differences.
    """

    criterion: str
    parameters: dict[str, Any]
    ratio: bool = False

    def declared_tolerance(self) -> float | None:
        """Return the tolerance that the criteria were written with, if they were."""
        from fairdial.core.criteria import criterion

        return criterion(self.criterion).declared if self.criterion else None

    def apply(self, model: DialClassifier) -> None:
        """Change what a trained model solves, before it is calibrated."""
        from fairdial.core.criteria import criterion, name_to_save

        given = dict(self.parameters)
        if self.criterion:
            given["criterion"] = self.criterion
        elif self.ratio:
            given["criterion"] = join_criteria([name_to_save(criterion(model.criterion))], True)
        known = model.get_params(deep=False)
        for name, value in given.items():
            if name not in known:
                raise InvalidInputError(
                    name, f"be left out for {type(model).__name__}: it is for thresholds"
                )
            setattr(model, name, value)


def stating_problem(command: Callback) -> Callback:
    """Add the options; the command gets them as ``problem``, a :class:`ProblemOptions`."""

    @click.option(
        "--criterion",
        "criteria",
        multiple=True,
        metavar="NAME[=TOLERANCE]",
        help="What to equalize between groups: demographic_parity, equal_opportunity, "
        "predictive_equality, equalized_odds, false_negative_rate_parity, accuracy_parity, "
        "predictive_parity or false_omission_rate_parity. RATE>=X and RATE<=X, such as "
        "'true_positive_rate>=0.8', are limits in every group. Repeat the option to demand several "
        "at once; with =TOLERANCE each has its own. [default: demographic_parity, or the model's]",
    )
    @click.option(
        "--ratio",
        is_flag=True,
        help="Limit ratios of rates, not differences: 1 - lowest / highest is at most the "
        "tolerance, so 0.2 is the four-fifths rule.",
    )
    @click.option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        help="What the thresholds maximize. [default: accuracy]",
    )
    @click.option("--cost-fp", type=Number(min=0), help="Minimize costs: that of a false positive.")
    @click.option("--cost-fn", type=Number(min=0), help="Minimize costs: that of a false negative.")
    @click.option(
        "--budget",
        type=BudgetNumber(min=0),
        help="Select at most this share of all rows; a whole number above 1 is a number of "
        "calibration rows.",
    )
    @click.option(
        "--exact-budget",
        is_flag=True,
        help="Use up the budget, as far as the tolerance allows, even if that lowers the "
        "objective.",
    )
    @click.option("--rising", is_flag=True, help="Only lower thresholds: no row is worse off.")
    @click.option(
        "--nested/--no-nested",
        default=None,
        help="Each row changes its decision at most once along the dial, or the best thresholds at "
        "each tolerance. [default: nested where that costs next to nothing]",
    )
    @click.option(
        "--randomize",
        is_flag=True,
        help="Mix thresholds by a hash of the row: the tolerance holds in expectation.",
    )
    @wraps(command)
    def wrapped(
        *args: Any,
        criteria: tuple[str, ...],
        ratio: bool,
        objective: str | None,
        cost_fp: float | None,
        cost_fn: float | None,
        budget: float | None,
        exact_budget: bool,
        rising: bool,
        nested: bool | None,
        randomize: bool,
        **kwargs: Any,
    ) -> Any:
        parameters: dict[str, Any] = {}
        if objective is not None or cost_fp is not None or cost_fn is not None:
            parameters["objective"] = _objective(objective, cost_fp, cost_fn)
        if budget is not None:
            parameters["budget"] = _budget(budget, exact_budget)
        elif exact_budget:
            raise InvalidInputError("exact_budget", "be used with `budget`")
        if nested is not None:
            parameters["nested"] = nested
        if rising:
            parameters["rising"] = True
        if randomize:
            parameters["randomize"] = "hash"
        joined = join_criteria(criteria, ratio) if criteria else ""
        problem = ProblemOptions(joined, parameters, ratio)
        _check(problem)
        return command(*args, problem=problem, **kwargs)

    return wrapped


class BudgetNumber(Number):
    """A share in [0, 1], or a whole number of rows."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a float for a share, an int for a number of rows."""
        found = super().convert(value, param, ctx)
        if found > 1 and found.is_integer() and "." not in str(value):
            return int(found)
        if not 0 <= found <= 1:
            hint = ""
            if 1 < found <= 100:
                hint = f" For {found:g}% of the rows, write {found / 100:g}."
            self.fail(
                f"{value} is neither a share in [0, 1] nor a whole number of rows.{hint}",
                param,
                ctx,
            )
        return found


def join_criteria(given: Sequence[str], ratio: bool) -> str:
    """Return criteria as one text; ``ratio`` turns limits on differences into limits on ratios.

    Examples
    --------
    >>> from fairdial.cli.problem_options import join_criteria
    >>> join_criteria(["demographic_parity=0.2", "true_positive_rate>=0.5"], ratio=True)
    'demographic_parity_ratio=0.2+true_positive_rate>=0.5'
    """
    from fairdial.core.criteria import criterion
    from fairdial.core.demands import RATIO

    parts = [part.strip() for text in given for part in text.split("+")]
    if ratio:
        parts = parts or ["demographic_parity"]
    for i, part in enumerate(parts):
        limit = ">=" in part or "<=" in part
        name, sign, tolerance = part.partition("=")
        if ratio and not limit and not name.strip().endswith(RATIO):
            parts[i] = f"{name.strip()}{RATIO}{sign}{tolerance}"
    text = "+".join(parts)
    return criterion(text).name if text and "=" not in text else text


def _objective(name: str | None, cost_fp: float | None, cost_fn: float | None) -> Any:
    if cost_fp is None and cost_fn is None:
        return name
    from fairdial.core.objectives import Costs

    if name is not None:
        raise InvalidInputError("objective", "be left out with `cost_fp` and `cost_fn`", given=name)
    return Costs(1.0 if cost_fp is None else cost_fp, 1.0 if cost_fn is None else cost_fn)


def _budget(budget: float, exact: bool) -> Any:
    if not exact:
        return budget
    from fairdial.core.problem import Budget

    if budget > 1:
        raise InvalidInputError("budget", "be a share in [0, 1] with `exact_budget`", given=budget)
    return Budget(float(budget), exact=True)


def _check(problem: ProblemOptions) -> None:
    """Refuse names and combinations that can't be solved before anything is read or trained."""
    from fairdial.core.problem import make_problem

    made = make_problem(
        problem.criterion or "demographic_parity", **problem.parameters, n_rows=float("inf")
    )
    for demand in made.criterion.demands:
        for other in made.criterion.demands:
            spreads = (demand.spread, other.spread)
            same = spreads == ("minimum", "maximum") and demand.rate == other.rate
            if same and demand.level > other.level:
                raise InvalidInputError(
                    "criterion",
                    "have demands that don't contradict each other",
                    given=f"{demand.name} and {other.name}",
                )
