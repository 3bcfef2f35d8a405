"""Write a report: its facts as JSON, the page as HTML, or printed to PDF."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairdial._files import write_file
from fairdial.errors import FairdialError, InvalidInputError
from fairdial.report.html import render_report

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
ENDS = (".html", ".htm", ".json", ".pdf")
SECONDS = 120.0  # to print


def write_report(facts: Mapping[str, Any], out: str | os.PathLike[str]) -> Path:
    """Write a report as HTML, JSON or PDF, by the end of its name; completely or not at all.

    A PDF is printed by chromium or Chrome, which must be installed.

    Parameters
    ----------
    facts : dict
        The result of :func:`fairdial.report.report_data`.
    out : path
        The file, which ends in ``.html``, ``.json`` or ``.pdf``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.report import report_data, write_report
    >>> sample = make_gaussian(4_000, random_state=0)
    >>> model = FairBayes(LogisticRegression(), tolerance=0.05, random_state=0)
    >>> model = model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_report(report_data(model), Path(folder) / "report.html")
    ...     written.name
    'report.html'
    """
    path = Path(out)
    check_kind(path)
    if path.suffix.lower() == ".json":
        write_file(path, json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    elif path.suffix.lower() == ".pdf":
        write_file(path, print_pdf(render_report(facts)))
    else:
        write_file(path, render_report(facts))
    return path


def check_kind(path: Path) -> None:
    """Refuse a file of another kind, and a PDF where nothing can print one."""
    if path.suffix.lower() not in ENDS:
        raise InvalidInputError("out", "end in .html, .json or .pdf", given=repr(path.name))
    if path.suffix.lower() == ".pdf":
        find_browser()


def find_browser() -> str:
    """Return the program that prints PDFs; raise if there is none."""
    for name in BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise InvalidInputError(
        "out",
        "end in .html where neither chromium nor Chrome is installed",
        given="a PDF",
        hint="Any browser prints the HTML page to PDF, in the same form.",
    )


def print_pdf(page: str) -> bytes:
    """Return an HTML page printed to PDF by a browser without a window."""
    program = find_browser()
    with tempfile.TemporaryDirectory(prefix="fairdial-report-") as folder:
        source, target = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_text(page, "utf-8")
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--disable-extensions",
            "--no-first-run",
            "--disable-background-networking",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={target}",
            source.as_uri(),
        ]
        if getattr(os, "geteuid", lambda: 1)() == 0:
            command.insert(1, "--no-sandbox")  # chromium's sandbox refuses root; no script runs
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FairdialError(f"{program} didn't print the report: {error}") from error
        if done.returncode != 0 or not target.is_file():
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise FairdialError(f"{program} didn't print the report: {' '.join(words)}")
        return target.read_bytes()
