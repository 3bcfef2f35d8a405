"""The command ``fairdial serve``."""

from __future__ import annotations

from pathlib import Path

import click

from fairdial.errors import FairdialError
from fairdial.serve.naming import names


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
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
    type=click.FloatRange(0, 1),
    help="Where the dial stands until it is first moved; default: the model's own.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
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
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Key with which the model must be signed.",
)
@click.option(
    "--allow-host",
    multiple=True,
    help="A further name under which the server may be asked, behind a proxy; repeatable.",
)
def serve(
    model: Path,
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
    key_file: Path | None,
    allow_host: tuple[str, ...],
) -> None:
    """Serve the model in the folder MODEL: decisions, the dial with its page, and the audit log."""
    from fairdial.serve import run

    try:
        run.serve(
            model,
            host=host,
            port=port,
            workers=workers,
            audit=audit,
            read_only=read_only,
            tolerance=tolerance,
            confidence=confidence,
            token_env=token_env,
            key=key_file,
            allow_hosts=allow_host,
            name=name,
            people=people,
            labels=label_names,
            announce=lambda address: click.echo(f"Serving on {address}", err=True),
            tell=lambda line: click.echo(line, err=True),
        )
    except FairdialError as error:
        raise click.UsageError(str(error)) from error
