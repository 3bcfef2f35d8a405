"""What a dial solves: a criterion, an objective, a budget, and how rows may move."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from fairdial._validation import check_choice
from fairdial.core.criteria import Criterion, Given, name_to_save
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.demands import Demand, exact, find_rate
from fairdial.core.groupings import Grouping
from fairdial.core.objectives import ACCURACY, Costs, Objective
from fairdial.core.objectives import objective as find_objective
from fairdial.core.rates import RATES
from fairdial.errors import InvalidInputError

Value = Literal["plug-in", "labels"]


@dataclass(frozen=True)
class Budget:
    """A limit on how many rows are selected in all groups together.

    Attributes
    ----------
    share : float
        Share of all calibration rows, in [0, 1].
    exact : bool
        Select as many rows as the share, the tolerance and ties allow, even if selecting more
        lowers the objective.

    Examples
    --------
    >>> from fairdial import Budget, sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> frontier = sweep(rows.logits, rows.groups, rows.y, budget=Budget(0.2, exact=True))
    >>> int(frontier.at(0.05).selected.sum())
    400
    """

    share: float
    exact: bool = False

    def __post_init__(self) -> None:
        number = isinstance(self.share, (int, float, np.number)) and not isinstance(
            self.share, bool
        )
        if not number or not 0 <= self.share <= 1:
            raise InvalidInputError("budget", "be a share in [0, 1]", given=repr(self.share))
        if not isinstance(self.exact, (bool, np.bool_)):
            raise InvalidInputError("exact", "be True or False", given=repr(self.exact))

    def most(self, n_rows: float) -> Fraction:
        """Return the largest number of selected rows."""
        return exact(self.share) * exact(n_rows)


def check_budget(budget: object, n_rows: float | None = None) -> Budget | None:
    """Return a budget given as a share, as a number of calibration rows, or as a Budget."""
    if budget is None or isinstance(budget, Budget):
        return budget
    if isinstance(budget, (int, np.integer)) and not isinstance(budget, bool) and budget > 1:
        if n_rows is None or budget > n_rows:
            raise InvalidInputError(
                "budget",
                "be at most the number of calibration rows"
                + ("" if n_rows is None else f", {n_rows:g}"),
                given=budget,
                hint="A share in [0, 1] needs no number of rows.",
            )
        share = float(budget / n_rows)
        if n_rows < np.inf and Budget(share).most(n_rows) < budget:  # rounded down
            share = float(np.nextafter(share, 1.0))
        return Budget(share)
    if isinstance(budget, (int, float, np.number)) and not isinstance(budget, bool):
        return Budget(float(budget))
    raise InvalidInputError(
        "budget", "be a share in [0, 1], a number of rows or a Budget", given=repr(budget)
    )


@dataclass(frozen=True)
class Problem:
    """What a dial solves at each tolerance.

    Attributes
    ----------
    criterion : Criterion
        The demands.
    objective : Objective
        What is maximized under them.
    budget : Budget or None
        Limit on the selected rows.
    nested : bool or None
        True: every row changes its decision at most once along the dial. False: the best
        thresholds at each tolerance. None: the threshold path where it applies, which is nested,
        and the best thresholds elsewhere.
    rising : bool
        Whether no row may lose a positive decision.
    randomize : {None, "hash"}
        "hash": mix up to a few thresholds per group by a hash of the row.
    value : {"plug-in", "labels"}
        Whether the objective is computed from scores or from labels.
    """

    criterion: Criterion
    objective: Objective = ACCURACY
    budget: Budget | None = None
    nested: bool | None = None
    rising: bool = False
    randomize: Literal["hash"] | None = None
    value: Value = "plug-in"

    @property
    def uses_path(self) -> bool:
        """Whether the threshold path solves it."""
        return (
            self.criterion.is_simple
            and self.objective.name == "accuracy"
            and self.budget is None
            and self.nested is not False
            and not self.rising
            and self.randomize is None
            and self.value == "plug-in"
        )

    @property
    def needs_labels(self) -> bool:
        """Whether criterion or objective depend on labels."""
        return self.criterion.needs_labels or self.value == "labels"


def make_problem(
    criterion: Given = "demographic_parity",
    objective: str | Objective = "accuracy",
    budget: object = None,
    nested: bool | None = None,
    rising: bool = False,
    randomize: str | None = None,
    value: str = "plug-in",
    *,
    n_rows: float | None = None,
) -> Problem:
    """Return the checked problem; a budget given as a number of rows needs ``n_rows``."""
    check_choice(nested, "nested", (None, True, False))
    check_choice(rising, "rising", (True, False))
    check_choice(randomize, "randomize", (None, "hash"))
    check_choice(value, "value", ("plug-in", "labels"))
    if randomize is not None and (nested or rising):
        raise InvalidInputError(
            "randomize",
            "be None with `nested` or `rising`: a lottery moves rows back and forth",
            given=repr(randomize),
        )
    kind = find_criterion(criterion)
    goal, limit = find_objective(objective), check_budget(budget, n_rows)
    if randomize is not None and (goal.name == "f1" or (limit is not None and limit.exact)):
        raise InvalidInputError(
            "randomize", "be None with F1 or an exact budget", given=repr(randomize)
        )
    if randomize is not None and not all(demand.rate.fixed for demand in kind.demands):
        raise InvalidInputError(
            "randomize",
            f"be None for {kind.name}, whose rates aren't linear",
            given=repr(randomize),
        )
    return Problem(
        kind,
        goal,
        limit,
        nested,
        rising,
        randomize,  # type: ignore[arg-type]
        value,  # type: ignore[arg-type]
    )


# ---- JSON --------------------------------------------------------------------------------------


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return the problem as JSON data; what isn't there has its default."""
    data: dict[str, Any] = {"criterion": criterion_to_json(problem.criterion)}
    if problem.objective != ACCURACY:
        data["objective"] = objective_to_json(problem.objective)
    if problem.budget is not None:
        data["budget"] = [problem.budget.share, problem.budget.exact]
    defaults = Problem(problem.criterion)
    for name in ("nested", "rising", "randomize", "value"):
        if getattr(problem, name) != getattr(defaults, name):
            data[name] = getattr(problem, name)
    return data


def problem_from_dict(data: dict[str, Any]) -> Problem:
    """Return the problem that :func:`problem_to_dict` was given; raise ValueError or the like."""
    return make_problem(
        criterion_from_json(data["criterion"]),
        objective_from_json(data.get("objective", ["accuracy", 1.0, 1.0])),
        None if data.get("budget") is None else Budget(*data["budget"]),
        data.get("nested"),
        data.get("rising", False),
        data.get("randomize"),
        data.get("value", "plug-in"),
    )


def objective_to_json(objective: Objective) -> list[str | float]:
    """Return the name of an objective and its costs."""
    return [objective.name, objective.false_positive, objective.false_negative]


def objective_from_json(data: list[Any]) -> Objective:
    """Return what :func:`objective_to_json` was given."""
    name, false_positive, false_negative = data
    if name == "costs":
        return Costs(false_positive, false_negative)
    return Objective("utility") if name == "utility" else find_objective(name)


def criterion_to_json(criterion: Criterion) -> str | dict[str, Any]:
    """Return a criterion's name, or its demands if no name says what they are."""
    found = [demand_to_json(demand) for demand in criterion.demands]
    if criterion.n_strata == 1 and not _is_own(criterion):
        return name_to_save(criterion)
    return {
        "name": criterion.name,
        "demands": found,
        "declared": criterion.declared,
        "description": criterion.description,
        "n_strata": criterion.n_strata,
    }


def _is_own(criterion: Criterion) -> bool:
    """Whether no criterion of the library has this name; a name is what it says."""
    try:
        find_criterion(criterion.name)
    except InvalidInputError:
        return True
    return any(
        d.strata is not None or d.where is not None or d.grouping is not None
        for d in criterion.demands
    )


def demand_to_json(demand: Demand) -> dict[str, Any]:
    """Return a demand as data; raise for rates and conditions that are code."""
    if demand.rate not in RATES:
        raise InvalidInputError(
            "criterion",
            "consist of rates of the library to be saved",
            given=f"your own {demand.rate.name!r}",
        )
    item: dict[str, Any] = {"rate": demand.rate.name, "spread": demand.spread}
    item |= {"scale": str(demand.scale), "level": demand.level}
    item |= {"strata": demand.strata, "within": demand.within}
    if demand.grouping is not None:
        item["grouping"] = asdict(demand.grouping)
    if demand.where is None:
        return item
    if not isinstance(demand.where, str):
        raise InvalidInputError(
            "where",
            "be the name of a column to be saved",
            given=f"the function {getattr(demand.where, '__name__', 'of a condition')!r}",
            hint="Add its result as a column of `control_features`, and name that.",
        )
    return item | {"where": demand.where}


def criterion_from_json(data: str | dict[str, Any]) -> Criterion:
    """Return what :func:`criterion_to_json` was given."""
    if isinstance(data, str):
        return find_criterion(data)
    size = int(data["n_strata"])
    declared = None if data["declared"] is None else float(data["declared"])
    if size < 1 or not 0 <= (declared or 0.0) <= 1:
        raise ValueError("a criterion has strata, and a tolerance in [0, 1]")
    return Criterion(
        str(data["name"]),
        tuple(demand_from_json(item, size) for item in data["demands"]),
        description=str(data["description"]),
        declared=declared,
        n_strata=size,
    )


def demand_from_json(item: dict[str, Any], n_strata: int = 1) -> Demand:
    """Return what :func:`demand_to_json` was given, with strata below their number."""
    strata = None if item["strata"] is None else tuple(map(int, item["strata"]))
    if any(not 0 <= stratum < n_strata for stratum in strata or ()):
        raise ValueError("a demand names a stratum that doesn't exist")
    where = item.get("where")
    if where is not None and not isinstance(where, str):
        raise ValueError("a condition is the name of a column")
    rate, scale, level = find_rate(item["rate"]), Fraction(item["scale"]), float(item["level"])
    found = Demand(rate, item["spread"], scale, level, where, strata, str(item["within"]))
    given = item.get("grouping")
    return found if given is None else replace(found, grouping=_grouping_from_json(given))


def _grouping_from_json(item: dict[str, Any]) -> Grouping:
    names, members = tuple(map(str, item["names"])), tuple(map(int, item["members"]))
    if set(members) != set(range(len(names))):
        raise ValueError("groups of a column don't match the intersections")
    return Grouping(str(item["column"]), names, members)
