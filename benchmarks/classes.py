"""Measure dials with more than two classes: accuracy and gap on real data, the bound, and time.

    python benchmarks/classes.py [--splits 5] [--rows 100000 1000000] [--only PART]
    python benchmarks/classes.py --only acs --acs FILE.parquet

Rows are divided as in LinearPost (Xian and Zhao, 2024): 35% train the classifier, 35% calibrate and
30% test. Scores come from gradient boosting (60 rounds) on all features, the group among them.
Tolerances aren't tuned on test rows: they are the ones that are named.

``--acs`` is a Parquet file with the columns of ACSIncome. If PINCP are incomes, the classes are
five equally large bands of income, as in LinearPost. If it only says whether they are above a
limit, as in some copies, the classes are five levels of education; the two can't be compared.

``--only bound`` compares the accuracy that the scores predict with the best of any randomized rule,
by a linear program of all rows (HiGHS). Times are CPU times of one thread, of ``sweep_classes``
alone, which prepares all tolerances and the rules that certificates test.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import Floats, cpu_time, machine, table
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from fairdial import FairBayes, FairdialWarning, sweep_classes
from fairdial.datasets import load_adult
from fairdial.metrics import gap

TOLERANCES = (0.02, 0.05, 0.10)
ACS_TOLERANCES = (0.055, 0.108)  # LinearPost's table has gaps of these sizes
PARTS = (0.35, 0.35, 0.30)  # training, calibration and test rows
RACES = {1: "White", 2: "Black", 6: "Asian", 8: "Other", 9: "Two or more"}  # of RAC1P
LEVELS = (15, 18, 20, 21)  # of SCHL: the last ones of school, high school, college, bachelor
SCHOOL = {"Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th"}
COLLEGE = {"Some-college", "Assoc-voc", "Assoc-acdm"}
BLUE = {"Craft-repair", "Machine-op-inspct", "Transport-moving", "Handlers-cleaners"}
BLUE |= {"Farming-fishing"}
SERVICE = {"Other-service", "Protective-serv", "Priv-house-serv", "Armed-Forces"}
OFFICE = {
    "Adm-clerical": "clerical",
    "Sales": "sales",
    "Exec-managerial": "managerial",
    "Prof-specialty": "professional",
    "Tech-support": "professional",
}

ROUNDS = 60  # of boosting


class Task(NamedTuple):
    """A label, features, and the criteria that hold for each kind of group."""

    name: str
    X: pd.DataFrame
    y: NDArray[Any]
    groups: dict[str, NDArray[Any]]
    criteria: dict[str, Sequence[str]]
    tolerances: Sequence[float]


# ---- data --------------------------------------------------------------------------------------


def education(name: str) -> str:
    """Return one of four levels of education on Adult."""
    if name in SCHOOL:
        return "school"
    return "high school" if name == "HS-grad" else "college" if name in COLLEGE else "degree"


def occupation(name: str) -> str:
    """Return one of six occupations on Adult."""
    if name in BLUE:
        return "manual"
    return "service" if name in SERVICE else OFFICE[name]


def adult_tasks() -> list[Task]:
    """Return education and occupation as labels, with sex and race as groups."""
    data = load_adult()
    X = data.X.assign(sex=pd.Categorical(data.groups))
    known = (X["occupation"] != "?").to_numpy()
    both, parity = ("demographic_parity", "equalized_odds"), ("demographic_parity",)
    found: list[Task] = []
    for label, function, rows in (
        ("education", education, np.ones(len(X), np.bool_)),
        ("occupation", occupation, known),
    ):
        some = X[rows].reset_index(drop=True)
        y = np.array([function(str(name)) for name in some[label]])
        left = some.drop(columns=[label, *(["education_num"] if label == "education" else [])])
        groups = {name: some[name].astype(str).to_numpy() for name in ("sex", "race")}
        criteria = {"sex": both, "race": parity}
        found.append(Task(f"Adult {label}", left, y, groups, criteria, TOLERANCES))
    return found


def acs_tasks(path: str, most: int) -> list[Task]:
    """Return income in five classes, or education, with five races as groups."""
    data = pd.read_parquet(path)
    data = data[data["RAC1P"].isin(RACES)]
    if len(data) > most:
        data = data.sample(most, random_state=0)
    data = data.reset_index(drop=True)
    groups = data["RAC1P"].astype(int).map(RACES).to_numpy().astype(str)
    if data["PINCP"].dtype == np.bool_:
        name = f"ACS education in 5 classes ({len(data):,} rows; the file has no incomes)"
        y = np.searchsorted(LEVELS, data["SCHL"].to_numpy())
        X = data.drop(columns=["SCHL", "ST"], errors="ignore").astype(float)
    else:
        name = f"ACSIncome in 5 classes ({len(data):,} rows)"
        edges = np.quantile(data["PINCP"], (0.2, 0.4, 0.6, 0.8))
        y = np.searchsorted(edges, data["PINCP"].to_numpy())
        X = data.drop(columns=["PINCP", "ST"], errors="ignore").astype(float)
    parity = {"race": ("demographic_parity",)}
    return [Task(name, X, y, {"race": groups}, parity, ACS_TOLERANCES)]


def shorten(task: Task, n: int) -> Task:
    """Return the first rows of a task."""
    groups = {name: values[:n] for name, values in task.groups.items()}
    return task._replace(X=task.X[:n], y=task.y[:n], groups=groups)


# ---- accuracy ----------------------------------------------------------------------------------


def measure(task: Task, seed: int) -> Floats:
    """Return accuracy, gap and whether the tolerance was reached, (cases, tolerances + 1, 3).

    Cases are kinds of groups and criteria. The first line of each is that of decisions without a
    limit.
    """
    _, X, y, _, _, tolerances = task
    rest, test = train_test_split(
        np.arange(len(y)), test_size=PARTS[2], stratify=y, random_state=seed
    )
    train, held = train_test_split(
        rest, test_size=PARTS[1] / (1 - PARTS[2]), stratify=y[rest], random_state=seed
    )
    fitted = HistGradientBoostingClassifier(
        categorical_features="from_dtype", max_iter=ROUNDS, random_state=seed
    )
    fitted.fit(X.iloc[train], y[train])
    found = []
    for kind, criterion in cases_of(task):
        groups = task.groups[kind]
        model = FairBayes(fitted, criterion=criterion, prefit=True, min_count=1)
        model.calibrate(X.iloc[held], y[held], sensitive_features=groups[held])
        for tolerance in (1.0, *tolerances):
            decided = model.predict(
                X.iloc[test], sensitive_features=groups[test], tolerance=tolerance
            )
            reached = gap(y[test], decided, sensitive_features=groups[test], criterion=criterion)
            point = model.frontier_.at(tolerance)
            assert point.gap <= tolerance or not point.feasible
            found.append((float((decided == y[test]).mean()), reached, point.feasible))
    return np.array(found).reshape(-1, len(tolerances) + 1, 3)


def cases_of(task: Task) -> list[tuple[str, str]]:
    """Return kinds of groups with their criteria."""
    return [(kind, name) for kind, names in task.criteria.items() for name in names]


def describe(tasks: Sequence[Task], splits: int) -> str:
    """Return a table of means and standard errors over splits."""
    lines = []
    for task in tasks:
        figures = np.array([measure(task, seed) for seed in range(splits)])
        for c, (kind, criterion) in enumerate(cases_of(task)):
            for j, tolerance in enumerate(("none", *(f"{t:g}" for t in task.tolerances))):
                accuracy, reached, feasible = figures[:, c, j].T
                share = "" if tolerance == "none" else f"{feasible.mean():.0%}"
                cells = [_mean(accuracy), _mean(reached), share]
                lines.append([task.name, kind, criterion, tolerance, *cells])
    head = ["data", "groups", "criterion", "tolerance", "test accuracy", "test gap", "reached"]
    return table(head, lines)


def _mean(values: Floats) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.4f} ± {error:.4f}"


# ---- the bound and time ------------------------------------------------------------------------


def draw(n: int, n_classes: int, n_groups: int, seed: int = 0) -> tuple[Floats, Any, Any]:
    """Return logits of classes, groups and labels of a known law."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_groups, size=n)
    means = 0.5 * rng.normal(size=(n_groups, n_classes))
    scores = means[codes] + rng.normal(size=(n, n_classes))
    return scores, codes, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def best_value(shares: Floats, codes: Any, tolerance: float) -> float:
    """Return the best expected accuracy of randomized decisions with demographic parity."""
    n, n_classes = shares.shape
    sizes, entries, limits = np.bincount(codes), [], []
    cases = itertools.product(range(n_classes), range(len(sizes)), (1.0, -1.0))
    for line, (c, a, sign) in enumerate(cases):
        rows = np.flatnonzero(codes == a)
        lines, values = np.full(len(rows) + 1, line), np.full(len(rows) + 1, sign / sizes[a])
        values[-1] = -sign  # the lowest rate of the class
        entries.append((lines, np.append(rows * n_classes + c, n * n_classes + c), values))
        limits.append(tolerance if sign > 0 else 0.0)
    line, column, value = map(np.concatenate, zip(*entries, strict=True))
    width, cells = n * n_classes + n_classes, np.arange(n * n_classes)
    upper = csr_matrix((value, (line, column)), shape=(len(limits), width))
    each = csr_matrix((np.ones(len(cells)), (cells // n_classes, cells)), shape=(n, width))
    cost = -np.append(shares.ravel(), np.zeros(n_classes)) / n
    return -linprog(cost, upper, limits, each, np.ones(n), bounds=(0, 1), method="highs").fun


def describe_bound(sizes: Sequence[int]) -> str:
    """Return a table of the largest distances to the linear program."""
    lines = []
    for n in sizes:
        for n_classes, n_groups in ((3, 2), (4, 3), (5, 5)):
            lost, violated, asked = [], 0, 0
            for seed in range(3):
                scores, codes, y = draw(n, n_classes, n_groups, seed)
                frontier = sweep_classes(scores, codes, y, min_count=1)
                for tolerance in TOLERANCES:
                    point = frontier.at(tolerance)
                    best = best_value(softmax(scores, axis=1), codes, tolerance)
                    decided = frontier.decide(scores, codes, tolerance)
                    asked += 1
                    violated += bool(
                        point.feasible and gap(y, decided, sensitive_features=codes) > tolerance
                    )
                    assert point.expected_value is not None
                    lost.append(best - point.expected_value)
            cells = [f"{max(lost):.5f}", f"{np.mean(lost):.5f}", f"{violated} of {asked}"]
            lines.append([f"{n:,}", str(n_classes), str(n_groups), *cells])
    head = ["rows", "classes", "groups", "largest loss", "mean loss", "tolerance broken"]
    return table(head, lines)


def describe_times(sizes: Sequence[int], goal: int | None) -> str:
    """Return a table of seconds by rows, classes, groups and criterion, and of the goal."""
    lines, judged = [], []
    cases = [(4, 2, "demographic_parity"), (4, 5, "demographic_parity"), (4, 2, "equalized_odds")]
    for n in sizes:
        for n_classes, n_groups, criterion in cases:
            rows = draw(n, n_classes, n_groups)
            seconds = cpu_time(
                lambda r=rows, c=criterion: sweep_classes(*r, criterion=c), 2
            ).seconds
            lines.append([f"{n:,}", str(n_classes), str(n_groups), criterion, f"{seconds:.2f}"])
            if n == goal and n_groups == 2 and criterion == "demographic_parity":
                verdict = "ok" if seconds < 4 else "miss"
                what = f"{n:,} rows, 4 classes, all tolerances"
                judged.append([what, "< 4 s", f"{seconds:.2f} s", verdict])
    found = table(["rows", "classes", "groups", "criterion", "CPU s, all tolerances"], lines)
    if judged:
        found += "\n\n" + table(["what", "goal", "measured", "verdict"], judged)
    return found


def main() -> None:
    """Print the machine and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--bound-rows", type=float, nargs="+", default=[1e3, 1e4])
    parser.add_argument("--acs", help="Parquet file with the columns of ACSIncome")
    parser.add_argument("--acs-rows", type=int, default=200_000)
    parser.add_argument("--only", choices=("adult", "acs", "bound", "time"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    splits, sizes, bounds = given.splits, given.rows, given.bound_rows
    if given.quick:
        splits, sizes, bounds = 2, [5_000], [300]
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore", FairdialWarning)  # the tables say what isn't reached
    parts = ("adult", "acs", "bound", "time") if given.only is None else (given.only,)
    with threadpool_limits(1):
        print(machine(["numpy", "scipy", "scikit-learn"]), "\n")
        if "adult" in parts:
            tasks = adult_tasks()
            if given.quick:
                tasks = [shorten(task, 3000) for task in tasks[:1]]
            print(describe(tasks, splits), "\n")
        if "acs" in parts and given.acs:
            print(describe(acs_tasks(given.acs, given.acs_rows), splits), "\n")
        if "bound" in parts:
            print(describe_bound([int(n) for n in bounds]), "\n")
        if "time" in parts:
            print(describe_times([int(n) for n in sizes], 10**6))


if __name__ == "__main__":
    main()
