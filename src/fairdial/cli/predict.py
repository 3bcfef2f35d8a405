"""``fairdial predict``: decide on the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import FairdialWarning, InvalidInputError, warn

if TYPE_CHECKING:
    import pandas as pd

    from fairdial._arrays import Floats, Indices
    from fairdial.cli.model_rows import ModelRows
    from fairdial.cli.plain_dial import PlainDial
    from fairdial.estimators.base import DialClassifier

DECISION, MARGIN, LOGIT = "decision", "margin", "logit"
FORMULA = r"[=@\t\r]|[+-](?![\d.,\s]*$)"  # how they begin; numbers with a sign are none


@click.command()
@options.MODEL
@options.DATA_OR_FOLDER
@options.TOLERANCE
@options.certifying
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write, .csv or .parquet; - is CSV on stdout.",
)
@click.option(
    "--id",
    "identity",
    multiple=True,
    metavar="COLUMN",
    help="Column of DATA to copy into the output; repeatable.",
)
@options.SENSITIVE
@options.OVERWRITE
@options.KEY
@options.reading_csv
@options.TRUST
@options.reporting
def predict(
    folder: Path,
    data: Path,
    tolerance: float | None,
    confidence: float | None,
    simultaneous: bool,
    out: Path,
    identity: tuple[str, ...],
    sensitive: tuple[str, ...],
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Write the decisions of MODEL for the rows of DATA, in their order.

    The columns are the decision, as a label; the margin, by which the score is above (or below, if
    negative) the threshold, in log-odds; and, for methods with thresholds, the logit, which is the
    score itself. The logit is the same at every tolerance, and is what calibrate --scores reads.
    With more than two classes the margin is how far the class that is decided is above the next
    one, in probability after prices. DATA must have the features and group columns of training (a
    blind model needs no group columns); other columns are ignored. A folder of Parquet files is
    read batch by batch, so it may be larger than memory; its decisions are one Parquet file.
    """
    from fairdial.cli.output import STDOUT, check_table_path, check_writable
    from fairdial.cli.plain_dial import open_to_predict
    from fairdial.cli.points import describe_bound, holds_for_any, json_value

    if out != STDOUT:
        check_table_path(out)
        check_writable(out, overwrite)
    elif show.as_json:
        raise InvalidInputError("as_json", "be used with a file as `out`", given="stdout for both")
    if data.is_dir():
        from fairdial.cli.folders import open_folder, predict_folder
        from fairdial.cli.models import open_model

        streamed = open_folder(data, csv_format, show)
        whole = open_model(folder, key_file, trust)
        model: DialClassifier | PlainDial = whole
        chosen = float(model.default_tolerance if tolerance is None else tolerance)
        counts = predict_folder(
            whole,
            streamed,
            out,
            tolerance=chosen,
            confidence=confidence,
            simultaneous=simultaneous,
            sensitive=sensitive,
            identity=identity,
        )
    else:
        model = open_to_predict(folder, key_file, trust)
        chosen = float(model.default_tolerance if tolerance is None else tolerance)
        counts = _predict_file(
            model,
            data,
            csv_format,
            out,
            at=(chosen, confidence, simultaneous),
            sensitive=sensitive,
            identity=identity,
            overwrite=overwrite,
            show=show,
        )
    labels, several = model.classes_.tolist(), len(model.classes_) > 2
    result = {
        "out": str(out),
        "rows": sum(counts),
        "selected": None if several else counts[1],
        "tolerance": chosen,
        "confidence": confidence,
        "simultaneous": holds_for_any(model.frontier_, confidence, simultaneous),
        "positive": None if several else json_value(labels[1]),
        "hash": model.model_hash_,
    }
    if several:
        result["decided"] = {str(label): n for label, n in zip(labels, counts, strict=True)}
    if show.as_json:
        show.result(result)
    where = "" if out == STDOUT else f"{out}: "
    shares = [f"{n:,} are {label!r}" for label, n in zip(labels, counts, strict=True)]
    named = ", ".join(shares if several else shares[1:])
    show.note(f"{where}{sum(counts):,} decisions at tolerance {chosen:g}, of which {named}.")
    if confidence is not None:
        frontier = model.frontier_
        point = frontier.at(chosen, confidence=confidence, simultaneous=simultaneous)
        anyway = holds_for_any(frontier, confidence, simultaneous)
        show.note(describe_bound(frontier, point, anyway))


def _predict_file(
    model: DialClassifier | PlainDial,
    data: Path,
    csv_format: options.CsvFormat,
    out: Path,
    *,
    at: tuple[float, float | None, bool],
    sensitive: tuple[str, ...],
    identity: tuple[str, ...],
    overwrite: bool,
    show: Output,
) -> list[int]:
    """Write the decisions on the rows of a file; return the number of rows of each class.

    ``at`` has tolerance, confidence and whether that holds for any tolerance.
    """
    import numpy as np

    from fairdial.cli.model_rows import match_known_groups, read_rows
    from fairdial.cli.output import is_parquet, write_table
    from fairdial.cli.reading import require_columns, split_names
    from fairdial.core.class_prices import choose_class, lead_of
    from fairdial.core.decide import select

    rows = read_rows(
        model,
        data,
        csv_format,
        sensitive=sensitive,
        verbatim=identity,
        with_groups=not model.frontier_.is_blind,
        note=show.note,
    )
    copied = split_names(identity, rows.table.columns)
    require_columns(rows.table, copied, "identity")
    for name in copied:
        if name in (DECISION, MARGIN, LOGIT):
            raise InvalidInputError(
                "identity", "not have the name of a column that predict writes", given=repr(name)
            )
    codes = None if model.frontier_.is_blind else match_known_groups(model, rows)
    margin, logits = score(model, rows, codes, *at)
    places = select(margin, 0.0).astype(int)
    if margin.ndim == 2:
        places = choose_class(margin)
        margin = lead_of(margin)
    found = rows.verbatim
    if is_parquet(out):  # calibrate --scores reads it: groups under the names that MODEL knows
        known = rows.group_columns
        found = found.assign(**{name: known[name] for name in copied if name in known})
    found = found.assign(**{DECISION: model.classes_[places], MARGIN: margin})
    if logits is not None:
        found[LOGIT] = logits
    if not is_parquet(out):
        warn_of_formulas(found[copied])
    write_table(found, out, overwrite=overwrite)
    return [int(n) for n in np.bincount(places, minlength=len(model.classes_))]


def warn_of_formulas(copied: pd.DataFrame) -> None:
    """Warn of texts that a spreadsheet would run as formulas; they are copied all the same."""
    for name in copied:
        texts = copied[name].dropna().astype(str)
        found = texts[texts.str.match(FORMULA)]
        if len(found):
            warn(
                f"{name!r} has texts such as {found.iloc[0]!r} that spreadsheets run as formulas: "
                "open the file as text",
                FairdialWarning,
            )


def score(
    model: DialClassifier | PlainDial,
    rows: ModelRows,
    codes: Indices | None,
    tolerance: float,
    confidence: float | None,
    simultaneous: bool,
) -> tuple[Floats, Floats | None]:
    """Return margins and, for methods with thresholds, logits; each row is scored once.

    With more than two classes, margins are values of the classes, (n, C).
    """
    import numpy as np

    from fairdial.cli.models import held_out_share, sizing_refusals
    from fairdial.cli.plain_dial import PlainDial

    if isinstance(model, PlainDial):
        assert codes is not None
        with sizing_refusals(model.held_out):
            point = model.frontier_.at(tolerance, confidence=confidence, simultaneous=simultaneous)
        logits = model.scores(rows.X, codes)
        return _margin(logits, point.thresholds[codes]), logits
    from fairdial.estimators.draws import draw_rows
    from fairdial.estimators.thresholds import ThresholdClassifier

    given, held_out = rows.sensitive_features, held_out_share(model.get_params(deep=False))
    with sizing_refusals(held_out):
        if not isinstance(model, ThresholdClassifier) or model.frontier_.has_prices:
            asked = np.full(len(rows.X), tolerance) if simultaneous else tolerance
            margin = model.decision_function(
                rows.X, sensitive_features=given, tolerance=asked, confidence=confidence
            )
            return margin, None
        point = model.frontier_.at(tolerance, confidence=confidence, simultaneous=simultaneous)
    logits = model.logits(rows.X, sensitive_features=given)
    draws = (
        None if point.lottery is None else draw_rows(model._take_groups(rows.X, given)[0], logits)
    )
    assert codes is not None
    return _margin(logits, point.thresholds_of(codes, draws)), logits


def _margin(logits: Floats, limits: Floats) -> Floats:
    """Return how far logits are above thresholds; inf - inf is not above."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        margin = logits - limits
    return np.where(np.isnan(margin), 0.0, margin)
