"""``fairdial predict``: decisions for the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

STDOUT = Path("-")
DECISION, MARGIN, LOGIT = "decision", "margin", "logit"


@click.command()
@options.MODEL
@options.DATA
@options.tolerance(told="The largest gap that is wished for. [default: where the dial rests]")
@options.certifies
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
    help="Column of DATA to write beside them, as it is there; repeatable.",
)
@options.SENSITIVE
@options.OVERWRITE
@options.KEY
@options.reads
@options.TRUST
@options.tells
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
    form: options.Form,
    show: Output,
) -> None:
    """Decisions of MODEL for the rows of DATA, in their order.

    The columns are the decision, as a label; the margin: how far the row is above (or below 0) the
    border of being selected, in log-odds; and, of methods with thresholds, the logit: the score
    itself, which is the same at every tolerance, for calibrate --scores logit. DATA must have the
    features and the sensitive columns that the model was trained with; others are ignored.
    """
    from fairdial.cli.figures import holds_for_any, plain
    from fairdial.cli.model_rows import read_rows, refuse_strangers, wishes
    from fairdial.cli.models import open_model, share_of, telling_table
    from fairdial.cli.tables import (
        check_free,
        check_table_name,
        is_parquet,
        need_columns,
        read_as_written,
        split_names,
        write_table,
    )

    if out == STDOUT:
        if show.as_json:
            raise InvalidInputError("--json must go with --out FILE: both would be on stdout.")
    else:
        check_table_name(out)
        check_free(out, overwrite)
    model = open_model(folder, key_file, trust)
    rows = read_rows(model, data, tell=show.note, form=form, sensitive=sensitive)
    beside = split_names(identity, rows.table.columns)
    need_columns(rows.table, beside, "--id")
    for name in beside:
        if name in (DECISION, MARGIN, LOGIT):
            raise InvalidInputError(f"--id must not be called {name!r}: that is written, too.")
    refuse_strangers(model, rows)
    wish = model.tolerance if tolerance is None else tolerance
    asked = wishes(wish, rows, simultaneous)
    with telling_table(share_of(model), asked=tolerance is not None):
        margin = model.decision_function(
            rows.X, sensitive_features=rows.apart, tolerance=asked, confidence=confidence
        )
    selected = margin > 0
    found = read_as_written(data, beside, form) if beside else rows.table[[]]
    if is_parquet(out):  # which calibrate --scores reads: groups under the names that are known
        found = found.assign(**{name: rows.told[name] for name in beside if name in rows.told})
    found = found.assign(**{DECISION: model.classes_[selected.astype(int)], MARGIN: margin})
    if hasattr(model, "logits"):
        found[LOGIT] = model.logits(rows.X, sensitive_features=rows.apart)
    write_table(found, out, overwrite=overwrite)
    told: dict[str, Any] = {
        "out": str(out),
        "rows": len(found),
        "selected": int(selected.sum()),
        "tolerance": wish,
        "confidence": confidence,
        "simultaneous": holds_for_any(model.frontier_, confidence, simultaneous),
        "positive": plain(model.classes_[1]),
        "hash": model.model_hash_,
    }
    if show.as_json:
        show.result(told)
    show.note(
        f"{told['rows']:,} decisions at tolerance {told['tolerance']:g}, {told['selected']:,} of "
        f"them {told['positive']!r}" + ("." if out == STDOUT else f", are in {out}.")
    )
