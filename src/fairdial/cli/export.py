"""``fairdial export``: a model as one HTML page, or as ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from fairdial.cli import options
from fairdial.cli.learners import asked_for
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError, MissingExtraError, say_install
from fairdial.serve.naming import names, people_of

FILE = click.Path(dir_okay=False, path_type=Path)
ENDS = {"--html": (".html", ".htm"), "--onnx": (".onnx",)}


@click.command()
@options.MODEL
@click.option("--html", type=FILE, help="One page that works offline: turn the dial and look.")
@click.option(
    "--onnx",
    type=FILE,
    help="The scorer as an ONNX graph that takes thresholds: of networks only, from train "
    "--method fairbayes or gfb.",
)
@names
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
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
    """Write MODEL as an HTML page for people, or as ONNX for programs; all of it or nothing.

    The page holds counts of calibration rows, no features and no identities; but where a group is
    small a count can be one person. Publish it only where the counts may be public.

    The graph takes the table's columns, the group and the thresholds of the groups, which fairdial
    dial MODEL --tolerance 0.05 --json tells.
    """
    from fairdial.cli.models import open_model
    from fairdial.cli.tables import check_free

    if html is None and onnx is None:
        raise InvalidInputError("--html or --onnx must be given, got neither.")
    if html is None and (name or people or label_names):
        raise InvalidInputError(
            "--name, --people and --label-names must come with --html: they are for the page."
        )
    wanted = {"--html": html, "--onnx": onnx}
    places = {option: path for option, path in wanted.items() if path is not None}
    for option, path in places.items():
        if not path.name.lower().endswith(ENDS[option]):
            raise InvalidInputError(
                f"{option} must end in {' or '.join(ENDS[option])}, got {path.name!r}."
            )
        check_free(path, overwrite, option)
    if onnx is not None:
        refuse_no_network(folder, key_file)
    model = open_model(folder, key_file, trust)
    makers: dict[str, Callable[[Path], Any]] = {}
    if html is not None:
        page = _part("fairdial.serve.page", "--html", "serve")
        makers["--html"] = lambda path: page.write_page(
            model,
            path,
            name=name or folder.absolute().name,
            people=people_of(model.frontier_.groups, people),
            labels=label_names,
        )
    if onnx is not None:
        graph = _part("fairdial.onnx", "--onnx", "onnx")
        makers["--onnx"] = lambda path: graph.export_onnx(model, path)
    write_all({places[option]: make for option, make in makers.items()})
    written = {option.removeprefix("--"): str(path) for option, path in places.items()}
    show.result(written | {"hash": model.model_hash_}, *written.values())


def refuse_no_network(folder: Path, key: Path | None) -> None:
    """Say that a model has no graph before its libraries are loaded."""
    from fairdial.cli.models import read_told

    manifest = read_told(folder, key).manifest
    if manifest["scorer"]["kind"] != "net":
        raise InvalidInputError(
            "--onnx is for networks with thresholds only (train --method fairbayes or gfb), got a "
            f"model of {asked_for(manifest)}."
        )


def write_all(makers: dict[Path, Callable[[Path], Any]]) -> None:
    """Write every file under another name first: if one fails, none is there."""
    halves = {path: path.with_name(f".{uuid4().hex}.{path.name}") for path in makers}
    try:
        for path, make in makers.items():
            make(halves[path])
        for path, half in halves.items():
            os.replace(half, path)
    finally:
        for half in halves.values():
            half.unlink(missing_ok=True)


def _part(module: str, option: str, extra: str) -> Any:
    """A part of the library that may not be there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{option} needs {error.name}: {say_install(extra)}.") from error
