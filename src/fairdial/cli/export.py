"""``fairdial export``: a model as one HTML page, or as ONNX."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError, MissingExtraError
from fairdial.serve.naming import names, people_of

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@options.MODEL
@click.option("--html", type=FILE, help="One page that works offline: turn the dial and look.")
@click.option("--onnx", type=FILE, help="The scorer and its thresholds as an ONNX graph.")
@names
@options.OVERWRITE
@options.KEY
@options.TRUST
@options.tells
def export(
    folder: Path,
    html: Path | None,
    onnx: Path | None,
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """Write MODEL as an HTML page for people, or as ONNX for programs.

    The page holds counts of calibration rows, no features and no identities; but where a group is
    small a count can be one person. Publish it only where the counts may be public.
    """
    from fairdial.cli.models import open_model
    from fairdial.cli.tables import check_free

    if html is None and onnx is None:
        raise InvalidInputError("--html or --onnx must be given, got neither.")
    if html is None and (name or people or label_names):
        raise InvalidInputError(
            "--name, --people and --label-names must come with --html: they are for the page."
        )
    for path in (html, onnx):
        if path is not None:
            check_free(path, overwrite)
    model = open_model(folder, key_file, trust)
    written = {}
    if html is not None:
        written["html"] = str(html)
        _part("fairdial.serve.page", "--html", "serve").write_page(
            model,
            html,
            name=name or folder.absolute().name,
            people=people_of(model.frontier_.groups, people),
            labels=label_names,
        )
    if onnx is not None:
        written["onnx"] = str(onnx)
        _part("fairdial.onnx", "--onnx", "onnx").export_onnx(model, onnx)
    show.result(written | {"hash": model.model_hash_}, *written.values())


def _part(module: str, option: str, extra: str) -> Any:
    """A part of the library that may not be there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{option} needs {error.name}: pip install 'fairdial[{extra}]'."
        ) from error
