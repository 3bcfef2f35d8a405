"""``fairdial report``: an audit report of a model and its decisions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click

from fairdial.cli import options
from fairdial.cli.output import Output, check_writable
from fairdial.cli.page_options import page_names
from fairdial.cli.problem_options import CONTROL
from fairdial.errors import InvalidInputError


@click.command()
@options.MODEL
@click.argument(
    "data",
    metavar="[DATA]",
    required=False,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Report to write: .html, .pdf (printed by chromium or Chrome, if installed), or .json "
    "with the facts alone.",
)
@click.option(
    "--audit",
    type=options.LogPlace(exists=True),
    help="Audit log of the server, with the history of the tolerance: a file, or "
    "postgresql://... [default: "
    "MODEL.audit.sqlite, if there is one]",
)
@click.option(
    "--tolerance",
    type=options.Fraction(0, 1),
    help="Tolerance that the report is about. [default: the one in effect by the audit log; "
    "without a log, the model's default tolerance]",
)
@click.option(
    "--confidence",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    help="With --tolerance: report on the decisions that are certified with this confidence.",
)
@click.option(
    "--level",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence of the statements about people in general.",
)
@options.LABEL
@options.SENSITIVE
@CONTROL
@options.DROP_MISSING
@page_names
@options.OVERWRITE
@options.KEY
@options.reading_csv
@options.TRUST
@options.reporting
def report(
    folder: Path,
    data: Path | None,
    out: Path,
    audit: Path | str | None,
    tolerance: float | None,
    confidence: float | None,
    level: float,
    label: str | None,
    sensitive: tuple[str, ...],
    control: tuple[str, ...],
    drop_missing: bool,
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Write an audit report of MODEL: what it decides, for whom, under which limit, since when.

    DATA are labeled rows that were used neither for training nor for calibration; without them, the
    report has the figures of the calibration rows only. It is written in plain words, for a
    regulator or a committee, and depends on MODEL, DATA and the audit log only: the same command
    writes the same report again. It holds counts of people, but no features and no identities.

    \b
    fairdial report model new.csv --out report.html
    fairdial report model new.csv --people F=women --people M=men --out report.pdf
    """
    from fairdial.cli.model_rows import read_labeled_rows, read_row_options
    from fairdial.cli.models import open_model, read_summary
    from fairdial.io.manifest import sees_group
    from fairdial.report.facts import Rows, report_data
    from fairdial.report.write import check_kind, write_report
    from fairdial.serve.audit import AUDIT_SUFFIX

    if data is None and (label or sensitive or control or drop_missing):
        given = next(
            option
            for option, value in (
                ("label", label),
                ("sensitive", sensitive),
                ("control", control),
                ("drop_missing", drop_missing),
            )
            if value
        )
        raise InvalidInputError(given, "be used with DATA")
    check_kind(out)
    check_writable(out, overwrite)
    model = open_model(folder, key_file, trust)
    manifest = read_summary(folder, key_file).manifest
    beside = Path(f"{folder.absolute()}{AUDIT_SUFFIX}")
    rows = None
    if data is not None:
        before = hashlib.sha256(data.read_bytes()).hexdigest()
        read, y = read_labeled_rows(
            model,
            data,
            csv_format,
            label=label,
            sensitive=sensitive,
            drop_missing=drop_missing,
            note=show.note,
        )
        more = read_row_options(read.table, None, control)
        rows = Rows(
            read.X,
            y,
            read.groups if read.sensitive_features is not None else None,
            more.get("control_features"),
            name=data.name,
            sha256=before,
            left_out=read.left_out,
        )
    facts = report_data(
        model,
        rows,
        tolerance=tolerance,
        confidence=confidence,
        level=level,
        audit=audit or (beside if beside.is_file() else None),
        name=name or folder.absolute().name,
        people=people,
        labels=label_names,
        sees_group=sees_group(manifest["scorer"]),
    )
    write_report(facts, out)
    show.result({"out": str(out)} | facts, str(out))
