"""``fairdial demo``: try the dial on Adult or COMPAS."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import require_extra

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from fairdial._arrays import Counts, Mask
    from fairdial.cli.points import Json
    from fairdial.core.point import Point
    from fairdial.datasets import Dataset
    from fairdial.estimators.thresholds import ThresholdClassifier

TOLERANCES = (0.0, 0.02, 0.05, 0.08, 0.1, 0.15, 1.0)
TOLERANCE, CONFIDENCE = 0.05, 0.95
TITLES = {
    "adult": "Who is predicted to earn more than $50K a year",
    "compas": "Who is predicted to be charged again within two years",
}
UNCONSTRAINED = "unconstrained"
BOOSTING = "gradient boosting"
FIGURES = ("demo-frontier.png", "demo-logits.png")


class Result(NamedTuple):
    """A trained model, and its decisions on the test rows at every tolerance."""

    model: ThresholdClassifier
    seconds: float
    points: list[Point]
    decisions: list[Counts]
    gaps: list[float]
    accuracies: list[float]


@click.command()
@click.option(
    "--data", type=click.Choice(list(TITLES)), default="adult", show_default=True, help="Data set."
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="NAME",
    help="Criterion, as in train; repeatable. [default: demographic_parity]",
)
@click.option(
    "--networks", is_flag=True, help="Also train a plain network and GFB; takes a minute or two."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Save the gradient boosting model in this folder.",
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Folder for {FIGURES[0]} and, with --networks, {FIGURES[1]}; created if missing.",
)
@click.option(
    "--tables",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Only write training rows and new rows as CSV files into this folder, to try the other "
    "commands on.",
)
@options.OVERWRITE
@options.reporting
def demo(
    data: str,
    criteria: tuple[str, ...],
    networks: bool,
    out: Path | None,
    figures: Path | None,
    tables: Path | None,
    overwrite: bool,
    show: Output,
) -> None:
    """Train once on Adult or COMPAS, then show what each tolerance costs, and who is affected."""
    from fairdial.cli.models import check_model_path
    from fairdial.cli.problem_options import join_criteria
    from fairdial.datasets.registry import DATASETS
    from fairdial.io.objects import import_skops

    criterion = join_criteria(criteria, ratio=False) or "demographic_parity"
    if out is not None:
        check_model_path(out, overwrite, None)
        import_skops()
    if networks:
        require_extra("torch", "--networks", "torch")
    if figures is not None:
        require_extra("matplotlib", "--figures", "plot")
        figures.mkdir(parents=True, exist_ok=True)
    table = DATASETS[data].load()
    train, test = table.split(test_size=0.2, random_state=0)
    if tables is not None:
        written = write_tables(data, {"train": train, "new": test}, tables, overwrite)
        show.result({"written": written}, *written)
        return
    show.note(f"{data}: {len(train):,} rows to train and calibrate, {len(test):,} to test.")
    results = {}
    for name, model in _models(criterion, networks, show).items():
        results[name] = run(model, train, test)
        show.note(
            f"Trained {name} and found {len(model.frontier_):,} operating points in "
            f"{results[name].seconds:.1f} s."
        )
    show.note("No retraining from here on.")
    parts = _parts(results[BOOSTING], test, TITLES[data])
    if networks:
        parts += ["\nTest rows by model:", _comparison(results)]
    models = [_result_data(name, result) for name, result in results.items()]
    show.result({"data": data, "models": models}, *parts)
    if out is not None:
        results[BOOSTING].model.save(out, overwrite=overwrite)
        show.note(f"Saved in {out}; try: fairdial dial {out} --tolerance {TOLERANCE:g}")
    if figures is not None:
        for path in draw(results, test, figures, data):
            show.note(f"Saved {path}.")
    if not show.as_json:
        show.note(_next_steps(data))


def _next_steps(data: str) -> str:
    """Return commands that continue from the demo, with files that they write themselves."""
    from fairdial.datasets.registry import DATASETS

    columns = DATASETS[data].columns
    assert columns is not None
    steps = []
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("fairdial") is None and activate.is_file():
        steps.append(f". {shlex.quote(os.path.relpath(activate))}")
    steps += [
        f"fairdial demo --data {data} --tables .",
        f"fairdial train {data}-train.csv --label {columns.label} "
        f"--positive {shlex.quote(columns.positive)} --sensitive {columns.group} "
        f"--tolerance {TOLERANCE:g} --out model",
    ]
    return "\n    ".join(["Next, train from a CSV file such as yours:", *steps])


def write_tables(data: str, parts: dict[str, Dataset], folder: Path, overwrite: bool) -> list[str]:
    """Write parts of a data set as CSV files, with group and label columns."""
    import numpy as np

    from fairdial.cli.output import write_table
    from fairdial.datasets.registry import DATASETS

    columns = DATASETS[data].columns
    assert columns is not None
    written = []
    for name, part in parts.items():
        features: pd.DataFrame = part.X
        labels = np.where(part.y == 1, columns.positive, columns.negative)
        path = folder / f"{data}-{name}.csv"
        rows = features.assign(**{columns.group: part.groups, columns.label: labels})
        write_table(rows, path, overwrite=overwrite)
        written.append(str(path))
    return written


def _models(criterion: str, networks: bool, show: Output) -> dict[str, ThresholdClassifier]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from fairdial.estimators.fairbayes import FairBayes
    from fairdial.estimators.gfb import GFB
    from fairdial.nn.network import Network

    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    common: dict[str, Any] = {
        "criterion": criterion,
        "tolerance": TOLERANCE,
        "random_state": 0,
    }
    models: dict[str, ThresholdClassifier] = {BOOSTING: FairBayes(boosting, **common)}
    if networks:
        network = Network(verbose=show.progress)
        models["plain network"] = FairBayes(network, **common)
        models["GFB"] = GFB(network=network, **common)
    return models


def run(model: ThresholdClassifier, train: Dataset, test: Dataset) -> Result:
    """Train a model, and decide on the test rows at every tolerance; they are scored once."""
    from fairdial._validation import match_groups
    from fairdial.cli.points import points_at
    from fairdial.core.decide import select
    from fairdial.metrics import gap

    start = time.perf_counter()
    model.fit(train.X, train.y, sensitive_features=train.groups)
    seconds = time.perf_counter() - start
    logits = model.logits(test.X, sensitive_features=test.groups)
    codes = match_groups(test.groups, model.frontier_.groups)
    points = points_at(model.frontier_, TOLERANCES)
    decisions = [select(logits, point.thresholds[codes]).astype(int) for point in points]
    gaps = [
        gap(test.y, d, sensitive_features=test.groups, criterion=model.criterion) for d in decisions
    ]
    accuracies = [float((d == test.y).mean()) for d in decisions]
    return Result(model, seconds, points, decisions, gaps, accuracies)


# ---- output ------------------------------------------------------------------------------------


def _parts(result: Result, test: Dataset, title: str) -> list[str | Table]:
    """Return the report on one model."""
    from fairdial.cli.output import table
    from fairdial.cli.points import NOT_REACHABLE_MEANS
    from fairdial.metrics import group_table

    decisions = result.decisions[TOLERANCES.index(TOLERANCE)]
    by_group = group_table(test.y, decisions, sensitive_features=test.groups)
    return [
        f"{title}: gradient boosting, trained once.",
        "\nCalibration rows:",
        calibration_table(result),
        f"{_describe_gap(result.model)}\n"
        "Thresholds are log-odds: 0 is a probability of 1/2.\n"
        f"{NOT_REACHABLE_MEANS}\n"
        f"The bounds on the gap on new data hold for all tolerances at once with {CONFIDENCE:.0%} "
        "confidence.\n",
        _describe_certificate(result.model),
        "\nTest rows:",
        decisions_table(result, test),
        "Changed: rows that gain (+) or lose (-) the positive decision, compared with the "
        "unconstrained model.",
        f"\nTest rows by group at tolerance {TOLERANCE:g}:",
        table(
            ["group", *(str(name).replace("_", " ") for name in by_group.columns)],
            [
                [str(group), f"{line.iloc[0]:,.0f}", *(f"{rate:.4f}" for rate in line.iloc[1:])]
                for group, line in by_group.iterrows()
            ],
        ),
    ]


def _describe_gap(model: ThresholdClassifier) -> str:
    from fairdial.cli.problems import describe_problem

    if model.frontier_.criterion.name == "demographic_parity":
        return "Gap: the difference between the groups' selection rates (demographic parity)."
    what = describe_problem(model.frontier_)
    return f"Gap: the smallest tolerance that allows the decisions ({what})."


def _describe_certificate(model: ThresholdClassifier) -> str:
    """Say what one tolerance that is chosen beforehand guarantees on new data."""
    from fairdial.errors import CannotCertifyError, render

    promise = f"A gap of at most {TOLERANCE:g} on new data with {CONFIDENCE:.0%} confidence"
    try:
        certified = model.frontier_.at(TOLERANCE, confidence=CONFIDENCE)
    except CannotCertifyError as refusal:
        message = render(str(refusal), lambda argument, value: f"{argument} {value}".rstrip())
        return f"{promise} can't be certified with these rows:\n{message}"
    return (
        f"{promise}:\nif you choose this one tolerance beforehand, a gap of "
        f"{certified.gap:.4f} on the calibration rows is small enough.\nAccuracy there is "
        f"{certified.accuracy:.4f} instead of {model.frontier_.at(TOLERANCE).accuracy:.4f}."
    )


def calibration_table(result: Result) -> Table:
    """Return a table of the operating points on calibration rows, with one line per tolerance."""
    from fairdial.cli.output import table
    from fairdial.cli.points import NOT_REACHABLE, gap_digits

    frontier = result.model.frontier_
    margin = frontier.margin(CONFIDENCE)
    thresholds = [f"threshold\n{group}" for group in frontier.groups]
    lines = [
        [
            _tolerance(point.tolerance),
            *(f"{threshold:+.3f}" for threshold in point.thresholds),
            f"{point.accuracy:.4f}",
            gap_digits(point),
            f"<= {min(point.gap + margin, 1):.3f}",
            "" if point.feasible else NOT_REACHABLE,
        ]
        for point in result.points
    ]
    head = ["tolerance", *thresholds, "accuracy", "gap", "gap on\nnew data", ""]
    return table(head, lines, note=True)


def decisions_table(result: Result, test: Dataset) -> Table:
    """Return a table of the decisions on test rows, with one line per tolerance."""
    from fairdial.cli.output import table

    groups = result.model.frontier_.groups
    lines = []
    for tolerance, accuracy, gap, decided in zip(
        TOLERANCES, result.accuracies, result.gaps, result.decisions, strict=True
    ):
        changes = [changed(result.decisions[-1], decided, test.groups == group) for group in groups]
        lines.append([_tolerance(tolerance), f"{accuracy:.4f}", f"{gap:.4f}", *changes])
    return table(["tolerance", "accuracy", "gap", *(f"changed\n{g}" for g in groups)], lines)


def _tolerance(tolerance: float) -> str:
    return UNCONSTRAINED if tolerance == 1.0 else f"{tolerance:g}"


def changed(before: Counts, after: Counts, rows: Mask) -> str:
    """Return how many of these rows gain and lose the positive decision."""
    change = after[rows] - before[rows]
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return " ".join(f"{n:+d}" for n in (gained, -lost) if n) or "0"


def _comparison(results: dict[str, Result]) -> Table:
    """Return a table that compares the models on test rows."""
    from fairdial.cli.output import table

    lines = [
        [_tolerance(tolerance)]
        + [f"{r.accuracies[i]:.4f} ({r.gaps[i]:.4f})" for r in results.values()]
        for i, tolerance in enumerate(TOLERANCES)
    ]
    return table(["tolerance", *(f"{name}\naccuracy (gap)" for name in results)], lines)


def _result_data(name: str, result: Result) -> Json:
    from fairdial.cli.points import point_data

    figures = zip(TOLERANCES, result.accuracies, result.gaps, strict=True)
    return {
        "name": name,
        "seconds": round(result.seconds, 3),
        "frontier": [point_data(point) for point in result.points],
        "test": [
            {"tolerance": t, "accuracy": accuracy, "gap": gap} for t, accuracy, gap in figures
        ],
    }


def draw(results: dict[str, Result], test: Dataset, folder: Path, data: str) -> list[Path]:
    """Draw the frontiers of all models with their test points, and the logits of both networks."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for i, (name, result) in enumerate(results.items()):
        result.model.frontier_.plot(axes, label=name, band=i == 0)
        label = f"{name}: test rows"
        axes.plot(result.gaps, result.accuracies, f"C{i}o", markersize=4, label=label)
    axes.set_title(f"{data}: each model trained once, used at every tolerance")
    axes.legend(fontsize="small")
    written = [folder / FIGURES[0]]
    figure.savefig(written[0], dpi=150)
    networks = [name for name in results if name != BOOSTING]
    if networks:
        figure, pair = plt.subplots(1, 2, figsize=(10, 3.5), sharex=True, layout="constrained")
        for name, ax in zip(networks, pair, strict=True):
            model = results[name].model
            model.plot_logits(test.X, sensitive_features=test.groups, ax=ax, label=name)
        written.append(folder / FIGURES[1])
        figure.savefig(written[1], dpi=150)
    return written
