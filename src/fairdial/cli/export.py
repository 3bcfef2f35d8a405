"""``fairdial export``: export a model as an HTML page, or as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fairdial.cli import options
from fairdial.cli.output import Output, check_writable, write_files
from fairdial.cli.page_options import page_names
from fairdial.errors import InvalidInputError, MissingExtraError, install_command

FILE = click.Path(dir_okay=False, path_type=Path)
ENDS = {"html": (".html", ".htm"), "onnx": (".onnx",)}


@click.command()
@options.MODEL
@click.option("--html", type=FILE, help="HTML page with the dial, which works offline.")
@click.option(
    "--onnx",
    type=FILE,
    help="ONNX graph of the scorer and the thresholds; for networks only (train --method fairbayes "
    "or gfb).",
)
@page_names
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@options.KEY
@options.TRUST
@options.reporting
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
    """Write MODEL as an HTML page for people, or as ONNX for programs; both files or none.

    The page holds counts of calibration rows, but no features and no identities. In a small group a
    count can be one person: publish the page only if the counts may be public.

    The graph takes the features, the group and the groups' thresholds, which fairdial dial MODEL
    --tolerance 0.05 --json prints.
    """
    from fairdial.cli.models import open_model

    if html is None and onnx is None:
        raise click.UsageError("Give --html or --onnx.")
    if html is None and (name or people or label_names):
        given = "name" if name else "people" if people else "label_names"
        raise InvalidInputError(given, "be used with `html`")
    paths = {
        argument: path
        for argument, path in {"html": html, "onnx": onnx}.items()
        if path is not None
    }
    for argument, path in paths.items():
        if not path.name.lower().endswith(ENDS[argument]):
            raise InvalidInputError(
                argument, f"end in {' or '.join(ENDS[argument])}", given=repr(path.name)
            )
        check_writable(path, overwrite, argument)
    if onnx is not None:
        _check_network(folder, key_file)
    model = open_model(folder, key_file, trust)
    writers: dict[Path, Callable[[Path], object]] = {}
    if html is not None:
        with _needs_extra("--html", "serve"):
            from fairdial.serve.page import write_page
        writers[html] = lambda path: write_page(
            model,
            path,
            name=name or folder.absolute().name,
            people=people,
            labels=label_names,
        )
    if onnx is not None:
        with _needs_extra("--onnx", "onnx"):
            from fairdial.io.onnx import export_onnx
        writers[onnx] = lambda path: export_onnx(model, path)
    write_files(writers)
    written = {argument: str(path) for argument, path in paths.items()}
    show.result(written | {"hash": model.model_hash_}, *written.values())


def _check_network(folder: Path, key: Path | None) -> None:
    """Refuse a model that has no ONNX graph before loading its libraries."""
    from fairdial.cli.models import read_summary
    from fairdial.io.manifest import trained_method

    manifest = read_summary(folder, key).manifest
    if manifest["scorer"]["kind"] != "net":
        raise InvalidInputError(
            "onnx",
            "be used with a network that has thresholds (train --method fairbayes or gfb)",
            given=f"a model of {trained_method(manifest)}",
        )


@contextmanager
def _needs_extra(option: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{option} needs {error.name}: {install_command(extra)}."
        ) from error
