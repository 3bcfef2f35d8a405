"""``fairdial demo``: the dial on a table of the study, from training to who is moved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import need_extra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairdial.datasets import Dataset

TOLERANCES = (0.0, 0.02, 0.05, 0.08, 0.1, 0.15, 1.0)
WISH, CONFIDENCE = 0.05, 0.95
TITLES = {
    "adult": "Who is taken to earn more than $50K a year",
    "compas": "Who is taken to be charged again within two years",
}
COLUMNS = {  # group, label, and the two labels
    "adult": ("sex", "income", "<=50K", ">50K"),
    "compas": ("origin", "charged_again", "no", "yes"),
}
NEXT = (
    'Next, on a table of your own: fairdial train people.csv --label income --positive ">50K" '
    "--sensitive sex --tolerance 0.05 --out model"
)
BOOSTING = "gradient boosting"
FIGURES = ("demo-frontier.png", "demo-logits.png")


class Curve(NamedTuple):
    """Test rows at every tolerance."""

    gaps: list[float]
    accuracies: list[float]
    decisions: list[NDArray[np.int64]]


@click.command()
@click.option("--data", type=click.Choice(list(TITLES)), default="adult", show_default=True)
@click.option("--networks", is_flag=True, help="Also a plain network and GFB; a minute or two.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep gradient boosting's model here.")
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Folder for {FIGURES[0]} and, with --networks, {FIGURES[1]}; made if need be.",
)
@click.option(
    "--tables",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Only write the rows, to train and new ones, as CSV files into this folder: something to "
    "try the other commands on.",
)
@options.OVERWRITE
@options.tells
def demo(
    data: str,
    networks: bool,
    out: Path | None,
    figures: Path | None,
    tables: Path | None,
    overwrite: bool,
    show: Output,
) -> None:
    """Train once on Adult or COMPAS, then turn the dial: what it costs, and whom it moves."""
    from fairdial.cli.models import check_place
    from fairdial.datasets import load_adult, load_compas
    from fairdial.persistence.quick import import_skops

    if out is not None:
        check_place(out, overwrite, None)
        import_skops()
    if networks:
        need_extra("torch", "--networks", "torch")
    if figures is not None:
        need_extra("matplotlib", "--figures", "plot")
        figures.mkdir(parents=True, exist_ok=True)
    table = load_adult() if data == "adult" else load_compas()
    train, test = table.split(test_size=0.2, random_state=0)
    if tables is not None:
        written = write_tables(data, {"train": train, "new": test}, tables, overwrite)
        show.result({"written": written}, *written)
        return
    show.note(f"{data}: {len(train):,} rows to train and calibrate, {len(test):,} to test.")
    models, seconds = _models(networks, show), {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(train.X, train.y, sensitive_features=train.groups)
        seconds[name] = time.perf_counter() - start
        show.note(
            f"Trained {name} and found {len(model.frontier_):,} positions of its dial in "
            f"{seconds[name]:.1f} s."
        )
    show.note("Nothing is trained again below.")
    curves = {name: on_test(model, test) for name, model in models.items()}
    parts = _parts(models[BOOSTING], curves[BOOSTING], test, TITLES[data])
    if networks:
        parts.append(_comparison(curves))
    show.result(_data(data, models, curves, seconds), *parts)
    if out is not None:
        models[BOOSTING].save(out, overwrite=overwrite)
        show.note(f"The model is in {out}: fairdial dial {out} --tolerance {WISH:g}")
    if figures is not None:
        for path in draw(models, curves, test, figures, data):
            show.note(f"Drawn in {path}.")
    if not show.as_json:
        show.note(NEXT)


def write_tables(data: str, parts: dict[str, Dataset], folder: Path, overwrite: bool) -> list[str]:
    """Write a data set's parts as CSV files, with its groups and its labels as columns."""
    import numpy as np

    from fairdial.cli.tables import write_table

    written = []
    for name, part in parts.items():
        group, label, negative, positive = COLUMNS[data]
        features: Any = part.X
        words = np.where(part.y == 1, positive, negative)
        path = folder / f"{data}-{name}.csv"
        write_table(
            features.assign(**{group: part.groups, label: words}), path, overwrite=overwrite
        )
        written.append(str(path))
    return written


def _models(networks: bool, show: Output) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from fairdial.methods.fairbayes import FairBayes
    from fairdial.methods.gfb import GFB
    from fairdial.methods.network import Network

    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    models: dict[str, Any] = {BOOSTING: FairBayes(boosting, tolerance=WISH, random_state=0)}
    if networks:
        network = Network(verbose=show.progress)
        models["plain network"] = FairBayes(network, tolerance=WISH, random_state=0)
        models["GFB"] = GFB(network=network, tolerance=WISH, random_state=0)
    return models


def on_test(model: Any, test: Dataset) -> Curve:
    """Gaps, accuracies and decisions on test rows at every tolerance."""
    from fairdial.metrics import gap

    decisions = [margin.astype(int) for margin in _decide(model, test)]
    gaps = [gap(test.y, d, sensitive_features=test.groups) for d in decisions]
    return Curve(gaps, [float((d == test.y).mean()) for d in decisions], decisions)


def _decide(model: Any, test: Dataset) -> Any:
    """Decisions at every tolerance; the rows are scored once."""
    from fairdial.cli.figures import positions

    logits = model.logits(test.X, sensitive_features=test.groups)
    groups = {name: code for code, name in enumerate(model.frontier_.groups)}
    codes = [groups[name] for name in test.groups]
    for point in positions(model.frontier_, TOLERANCES):
        yield logits > point.thresholds[codes]


# ---- what is told ------------------------------------------------------------------------------


def _parts(model: Any, curve: Curve, test: Dataset, title: str) -> list[Any]:
    """The story of one model."""
    from fairdial.cli.figures import MARK, UNREACHED
    from fairdial.metrics import group_table

    by_group = group_table(
        test.y, curve.decisions[TOLERANCES.index(WISH)], sensitive_features=test.groups
    )
    return [
        f"{title}: gradient boosting, trained once.",
        dial_table(model, curve, test),
        "Gap: the difference between the groups' shares of selected rows (demographic parity).\n"
        "Thresholds are log-odds: 0 is a probability of 1/2. Flips: test rows that gain (+) or "
        "lose (-) against the\nunconstrained decisions. The bound for new rows holds for the whole "
        "column at once, and is wider for that.\n"
        f"{MARK} {UNREACHED}\n",
        _promise(model),
        f"\nTest rows by group at tolerance {WISH:g}:\n{by_group.round(4).to_string()}",
    ]


def _promise(model: Any) -> str:
    """What can be said about new rows, for one tolerance that is declared beforehand."""
    from fairdial.errors import CannotCertifyError

    told = f"A gap of at most {WISH:g} on new rows with {CONFIDENCE:.0%} confidence"
    try:
        sure = model.frontier_.at(WISH, confidence=CONFIDENCE)
    except CannotCertifyError as refusal:
        return f"{told}: these rows can't promise it.\n{refusal}"
    return (
        f"{told}, declared beforehand\n(narrower than the column's bounds, as it is for one line): "
        f"the dial keeps {sure.gap:.4f} on the calibration\nrows; accuracy there is "
        f"{sure.accuracy:.4f} instead of {model.frontier_.at(WISH).accuracy:.4f}."
    )


def dial_table(model: Any, curve: Curve, test: Dataset) -> Any:
    """One line a tolerance: thresholds, figures, who flips."""
    from fairdial.cli.figures import positions
    from fairdial.cli.output import table

    points = positions(model.frontier_, TOLERANCES)
    groups, margin = points[0].groups, model.frontier_.margin(CONFIDENCE)
    head = [
        "tolerance",
        *(f"threshold\n{group}" for group in groups),
        "accuracy\ncalib.",
        "gap\ncalib.",
        f"new rows,\n{CONFIDENCE:.0%} sure",
        "accuracy\ntest",
        "gap\ntest",
        *(f"flips\n{group}" for group in groups),
    ]
    lines = []
    for point, accuracy, gap, decided in zip(
        points, curve.accuracies, curve.gaps, curve.decisions, strict=True
    ):
        moved = [flips(curve.decisions[-1], decided, test.groups == group) for group in groups]
        lines.append(
            [
                f"{point.tolerance:.2f}" + ("" if point.feasible else " *"),
                *(f"{threshold:+.3f}" for threshold in point.thresholds),
                f"{point.accuracy:.4f}",
                f"{point.gap:.4f}",
                f"<= {min(point.gap + margin, 1):.3f}",
                f"{accuracy:.4f}",
                f"{gap:.4f}",
                *moved,
            ]
        )
    return table(head, lines)


def flips(before: NDArray[np.int64], after: NDArray[np.int64], rows: NDArray[np.bool_]) -> str:
    """How many of these rows gain and lose."""
    change = after[rows] - before[rows]
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return " ".join(f"{n:+d}" for n in (gained, -lost) if n) or "0"


def _comparison(curves: dict[str, Curve]) -> Any:
    """The models beside each other, on test rows."""
    from fairdial.cli.output import table

    lines = [
        [f"{wish:.2f}"] + [f"{c.accuracies[i]:.4f} ({c.gaps[i]:.4f})" for c in curves.values()]
        for i, wish in enumerate(TOLERANCES)
    ]
    return table(["tolerance", *(f"{name}\naccuracy (gap), test" for name in curves)], lines)


def _data(
    data: str, models: dict[str, Any], curves: dict[str, Curve], seconds: dict[str, float]
) -> dict[str, Any]:
    from fairdial.cli.figures import point_data, positions

    return {
        "data": data,
        "models": [
            {
                "name": name,
                "seconds": round(seconds[name], 3),
                "frontier": [point_data(p) for p in positions(model.frontier_, TOLERANCES)],
                "test": [
                    {"tolerance": wish, "accuracy": accuracy, "gap": gap}
                    for wish, accuracy, gap in zip(
                        TOLERANCES, curves[name].accuracies, curves[name].gaps, strict=True
                    )
                ],
            }
            for name, model in models.items()
        ],
    }


def draw(
    models: dict[str, Any], curves: dict[str, Curve], test: Dataset, folder: Path, data: str
) -> list[Path]:
    """Frontiers of all models with their test points; logits of both networks."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for i, (name, model) in enumerate(models.items()):
        model.frontier_.plot(axes, label=name, band=i == 0)
        dots = f"{name}: test rows"
        axes.plot(*curves[name][:2], "o", color=f"C{i}", markersize=4, label=dots)
    axes.set_title(f"{data}: each model trained once, set to every tolerance")
    axes.legend(fontsize="small")
    written = [folder / FIGURES[0]]
    figure.savefig(written[0], dpi=150)
    networks = [name for name in models if name != BOOSTING]
    if networks:
        figure, pair = plt.subplots(1, 2, figsize=(10, 3.5), sharex=True, layout="constrained")
        for name, ax in zip(networks, pair, strict=True):
            models[name].plot_logits(test.X, sensitive_features=test.groups, ax=ax, label=name)
        written.append(folder / FIGURES[1])
        figure.savefig(written[1], dpi=150)
    return written
