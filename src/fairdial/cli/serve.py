"""``fairdial serve``: serve a model over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.cli.page_options import page_names


@click.command()
@options.MODEL
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=options.Integer(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--workers",
    type=options.Integer(min=1),
    default=1,
    show_default=True,
    help="Number of processes.",
)
@click.option(
    "--audit",
    type=options.LogPlace(),
    help="Audit log, which stores the current tolerance: a file, or postgresql://... for several "
    "hosts. [default: MODEL.audit.sqlite]",
)
@click.option(
    "--observed",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the counts of observed rows. [default: the audit log's name with .observed]",
)
@click.option(
    "--read-only", is_flag=True, help="Nobody can change the tolerance; no token is needed."
)
@click.option(
    "--tolerance",
    type=options.Fraction(0, 1),
    help="Tolerance until somebody changes it. [default: the model's default tolerance]",
)
@click.option(
    "--confidence",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    help="Allow only tolerances that are certified with at least this confidence.",
)
@page_names
@click.option(
    "--token-env",
    default="FAIRDIAL_TOKEN",
    show_default=True,
    help="Environment variable with the token that allows changing the tolerance.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the SHA-256 of a token and a name in each line; the audit log has the name.",
)
@click.option(
    "--open-observe",
    is_flag=True,
    help="Let anybody send observations; otherwise they need the token, or the one in "
    "FAIRDIAL_OBSERVE_TOKEN.",
)
@options.KEY
@click.option(
    "--allow-host",
    multiple=True,
    help="Additional host name to answer to, behind a proxy; repeatable.",
)
@click.option("--root-path", default="", help="Prefix of all paths, such as /dial.")
@options.TRUST
@options.reporting
def serve(
    folder: Path,
    host: str,
    port: int,
    workers: int,
    audit: Path | str | None,
    observed: Path | None,
    read_only: bool,
    tolerance: float | None,
    confidence: float | None,
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    token_env: str,
    token_file: Path | None,
    open_observe: bool,
    key_file: Path | None,
    allow_host: tuple[str, ...],
    root_path: str,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """Serve MODEL over HTTP: decisions, a page with the dial, and the audit log.

    With --json, the address is printed to stdout when the server starts.
    """
    from fairdial.serve import run

    def announce(address: str) -> None:
        if show.as_json:
            show.result({"address": address, "model": str(folder)})
        else:
            show.note(f"Serving on {address}{' (read-only)' if read_only else ''}")

    run.serve(
        folder,
        host=host,
        port=port,
        workers=workers,
        audit=audit,
        observed=observed,
        read_only=read_only,
        tolerance=tolerance,
        confidence=confidence,
        token_env=token_env,
        token_file=token_file,
        open_observe=open_observe,
        key=key_file,
        allow_hosts=allow_host,
        root_path=root_path,
        name=name,
        people=people,
        labels=label_names,
        trusted=trust,
        announce=announce,
        progress=show.note,
    )
