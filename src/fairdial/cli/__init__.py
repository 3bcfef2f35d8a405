"""The command line: ``fairdial train``, ``dial``, ``predict`` and the rest.

Each command is a module of this package, imported when it is called; what it needs of the library
is imported when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import click

from fairdial._version import __version__
from fairdial.cli.groups import Command, Commands, take_debug

COMMANDS = {
    "train": Command("fairdial.cli.train:train", "Train a model with a dial on a table."),
    "info": Command("fairdial.cli.info:info", "What a model is."),
    "dial": Command("fairdial.cli.dial:dial", "What a tolerance does, and whom it moves."),
    "predict": Command("fairdial.cli.predict:predict", "Decisions for the rows of a table."),
    "calibrate": Command("fairdial.cli.calibrate:calibrate", "Find the dial anew on fresh rows."),
    "evaluate": Command("fairdial.cli.evaluate:evaluate", "How decisions do on labelled rows."),
    "serve": Command("fairdial.cli.serve:serve", "Serve a model over HTTP.", extra="serve"),
    "export": Command("fairdial.cli.export:export", "A model as one HTML page, or as ONNX."),
    "bench": Command("fairdial.cli.bench:bench", "Studies: run a plan, write its report."),
    "demo": Command("fairdial.cli.demo:demo", "The dial on Adult or COMPAS, in seconds."),
}


@click.group(cls=Commands, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairdial")
@take_debug
def main() -> None:
    """Fair classification with a dial: train once, set the tolerance afterwards.

    \b
    fairdial train people.csv --label income --positive ">50K" --sensitive sex \\
        --tolerance 0.05 --out model
    fairdial dial model --tolerance 0.05
    fairdial predict model new.csv --tolerance 0.05 --out decisions.csv

    Results go to stdout (--json: as JSON), everything else to stderr. Exit codes: 0 done, 1 failed,
    2 wrong usage or input, 130 interrupted.
    """
