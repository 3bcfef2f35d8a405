"""``fairdial serve``: a model over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.serve.naming import names


@click.command()
@options.MODEL
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=options.Whole(0, 65535),
    default=8000,
    show_default=True,
    help="Port; 0 takes a free one.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The audit log, which decides where the dial stands; default: MODEL.audit.sqlite.",
)
@click.option("--read-only", is_flag=True, help="The dial can't be moved; no token is needed.")
@click.option(
    "--tolerance",
    type=options.Share(0, 1),
    help="Where the dial stands until somebody moves it; default: the model's own.",
)
@click.option(
    "--confidence",
    type=options.Share(0, 1, min_open=True, max_open=True),
    help="Every position must be certified with at least this confidence.",
)
@names
@click.option(
    "--token-env",
    default="FAIRDIAL_TOKEN",
    show_default=True,
    help="Environment variable with the token that moves the dial.",
)
@click.option(
    "--open-observe",
    is_flag=True,
    help="Anybody may send observations; otherwise the token, or one in FAIRDIAL_OBSERVE_TOKEN, "
    "is needed.",
)
@options.KEY
@click.option(
    "--allow-host",
    multiple=True,
    help="A further name under which the server may be asked, behind a proxy; repeatable.",
)
@options.tells
def serve(
    folder: Path,
    host: str,
    port: int,
    workers: int,
    audit: Path | None,
    read_only: bool,
    tolerance: float | None,
    confidence: float | None,
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    token_env: str,
    open_observe: bool,
    key_file: Path | None,
    allow_host: tuple[str, ...],
    show: Output,
) -> None:
    """Serve MODEL over HTTP: decisions, the dial with its page, and the audit log.

    With --json the address is told on stdout, as the server starts.
    """
    from fairdial.serve import run

    def announce(address: str) -> None:
        if show.as_json:
            show.result({"address": address, "model": str(folder)})
        else:
            show.note(f"Serving on {address}")

    run.serve(
        folder,
        host=host,
        port=port,
        workers=workers,
        audit=audit,
        read_only=read_only,
        tolerance=tolerance,
        confidence=confidence,
        token_env=token_env,
        open_observe=open_observe,
        key=key_file,
        allow_hosts=allow_host,
        name=name,
        people=people,
        labels=label_names,
        announce=announce,
        tell=show.note,
    )
