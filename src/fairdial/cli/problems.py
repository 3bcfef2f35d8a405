"""What a dial solves, in words, tables and JSON: demands, objective, budget, nesting."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fairdial.cli.output import table
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand, exact
from fairdial.core.frontier import Frontier
from fairdial.core.point import Point, number_of_rows
from fairdial.core.rising import rising_frontier
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]

DIGITS = 4
SIGNS = {"minimum": ">=", "maximum": "<="}


def spell(name: str) -> str:
    """Return the name of a criterion, a demand or a column as words."""
    words = name.replace("_", " ")
    for sign in (">=", "<=", "+"):
        words = words.replace(sign, f" {sign} ")
    return words


def digits(value: float | None) -> str:
    """Return a number with four decimals; a dash for what isn't known."""
    return "-" if value is None or value != value else f"{value:.{DIGITS}f}"


def count(value: float, sign: str = "") -> str:
    """Return a number of rows, or a sum of weights with one decimal."""
    number = float(value)
    return f"{number:{sign},.0f}" if number.is_integer() else f"{number:{sign},.1f}"


# ---- JSON --------------------------------------------------------------------------------------


def problem_data(frontier: Frontier) -> Json:
    """Return what a frontier solves, for JSON."""
    problem = frontier.problem
    budget, costs = problem.budget, None
    if frontier.objective.name == "costs":
        costs = {
            "false_positive": frontier.objective.false_positive,
            "false_negative": frontier.objective.false_negative,
        }
    return {
        "criterion": problem.criterion.name,
        "demands": [
            {"demand": demand.name, "spread": demand.spread, "scale": float(demand.scale)}
            for demand in problem.criterion.demands
        ],
        "objective": frontier.objective.name,
        "costs": costs,
        "budget": None if budget is None else {"share": budget.share, "exact": budget.exact},
        "nested": frontier.nested,
        "nested_loss": frontier.nested_loss,
        "rising": problem.rising,
        "randomize": problem.randomize,
    }


# ---- words -------------------------------------------------------------------------------------


def describe_objective(frontier: Frontier) -> str:
    """Return what is maximized; costs with their numbers."""
    if frontier.objective.name != "costs":
        return frontier.objective.title
    costs = frontier.objective
    return (
        f"minus mean cost (a false positive costs {costs.false_positive:g}, a false negative "
        f"{costs.false_negative:g})"
    )


def describe_budget(frontier: Frontier) -> str:
    """Return the limit on the selected rows."""
    budget = frontier.problem.budget
    if budget is None:
        return "none"
    return f"{'' if budget.exact else 'at most '}{100 * budget.share:.4g}% of all rows"


def describe_nesting(frontier: Frontier) -> str:
    """Return whether rows can change back along the dial, and what nesting costs."""
    if frontier.is_family:
        return "no (each model decides for itself)"
    if frontier.classes is not None and frontier.nested:
        return "yes (no row returns to a class that it left)"
    if frontier.has_prices and not frontier.nested:
        return "no (a row may change its decision back along the dial)"
    if frontier.problem.randomize is not None:
        return "no (a lottery by a hash of the row; the tolerance holds in expectation)"
    rising = "; no row loses a positive decision" if frontier.problem.rising else ""
    if not frontier.nested:
        return f"no (a row may change its decision back along the dial{rising})"
    cost = ""
    if frontier.nested_loss is not None:
        cost = f", which costs at most {frontier.nested_loss:.4f} of {frontier.objective.title}"
    return f"yes (each row changes its decision at most once along the dial{cost}{rising})"


def describe_rows(frontier: Frontier, kind: str) -> str:
    """Return the number of calibration rows; the sum of their weights if they have weights."""
    if frontier.certificate == "weighted":
        return f"{kind} with a total weight of {number_of_rows(frontier.counts)}"
    return f"{number_of_rows(frontier.counts)} {kind}"


def describe_problem(frontier: Frontier) -> str:
    """Return criterion, and what differs from maximizing accuracy without a budget, in one line."""
    parts = [spell(frontier.criterion.name)]
    if frontier.classes is not None:
        limited = {demand.strata for demand in frontier.criterion.demands}
        parts[0] += f" for {len(limited)} of {len(frontier.classes)} classes"
    elif frontier.criterion.n_strata > 1:
        parts[0] += f" within {frontier.criterion.n_strata} strata"
    if frontier.objective.name != "accuracy":
        parts.append(f"objective {describe_objective(frontier)}")
    if frontier.problem.budget is not None:
        parts.append(f"budget {describe_budget(frontier)}")
    if not frontier.problem.uses_path and not frontier.is_family:
        parts.append(f"nested: {describe_nesting(frontier)}")
    return "; ".join(parts)


# ---- demands -----------------------------------------------------------------------------------


def is_plain(criterion: Criterion) -> bool:
    """Return whether a single difference says it all."""
    return len(criterion.demands) == 1 and criterion.demands[0].spread == "difference"


def limit_of(demand: Demand, tolerance: float) -> float:
    """Return the largest gap of a demand that a tolerance allows, unscaled."""
    return float(demand.scale * exact(tolerance))


def demands_data(point: Point) -> list[Json]:
    """Return each demand with its gap, its limit and the groups' rates, for JSON."""
    criterion, found = point.criterion, []
    split = criterion.split(point.selected_cells), criterion.split(point.cells)
    for demand in criterion.demands:
        over, under = demand.parts(*split)
        rates = [k / n if n else None for k, n in zip(over.tolist(), under.tolist(), strict=True)]
        found.append(
            {
                "demand": demand.name,
                "spread": demand.spread,
                "scale": float(demand.scale),
                "gap": float(replace(demand, scale=Fraction(1)).gap_of(*split)),
                "limit": limit_of(demand, point.tolerance),
                "rates": rates,
            }
        )
    return found


def demands_table(point: Point, most_groups: int = 4) -> Table:
    """Return a table of demands: gap, limit at the tolerance, and the groups' rates."""
    few = len(point.groups) <= most_groups and not point.criterion.has_groupings
    names = [str(group) for group in point.groups] if few else ["lowest", "highest"]
    lines = []
    for line in demands_data(point):
        rates = line["rates"]
        known = [rate for rate in rates if rate is not None]
        if not few:
            rates = [min(known, default=None), max(known, default=None)]
        cells = [digits(rate) for rate in rates]
        lines.append([spell(line["demand"]), digits(line["gap"]), digits(line["limit"]), *cells])
    return table(["demand", "gap", "allowed", *names], lines)


# ---- the leveling-up answer --------------------------------------------------------------------


def rising_point(frontier: Frontier, tolerance: float) -> Point:
    """Return the answer that only lowers thresholds, from the same scores."""
    rising = rising_frontier(frontier)
    if rising is not None:
        return rising.at(tolerance)
    given = "thresholds that can't only fall"
    if frontier.problem.randomize:
        given = "a lottery"
    elif frontier.is_family or frontier.has_prices:
        given = "a model family" if frontier.is_family else "prices"
    raise InvalidInputError(
        "rising",
        "be used with groups whose thresholds can be lowered within all maximum rates",
        given=given,
    )


def compare_rising(plain: Point, rising: Point) -> Table:
    """Return a table of both answers: accuracy, objective, gap, and the selected share by group."""
    objective = plain.problem.objective
    extra = [] if objective.name == "accuracy" else [objective.title]
    rates = [rate for rate in plain.criterion.rates if rate.name != "selection_rate"]
    rates = [] if len(plain.groups) * (len(rates) + 1) > 8 else rates
    shares = [f"selected\n{group}" for group in plain.groups]
    shares += [f"{spell(rate.name)}\n{group}" for rate in rates for group in plain.groups]
    lines = []
    for name, point in (("best", plain), ("no one loses", rising)):
        values = [digits(point.accuracy), *([digits(point.value)] if extra else [])]
        cells = [digits(share) for share in point.selection_rate.tolist()]
        cells += [
            digits(value)
            for rate in rates
            for value in rate.of(point.selected, point.counts).tolist()
        ]
        lines.append([name, *values, digits(point.gap), *cells])
    return table(["answer", "accuracy", *extra, "gap", *shares], lines)
