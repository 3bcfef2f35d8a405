"""The page on which anybody can turn the dial: one file that works offline, or a server's page.

Both are made from the same files. The exported page contains its scripts, styles and the document
of :func:`fairdial.serve.page_data.page_data`, and makes no requests. The served page makes these
requests, relative to its own address:

- ``GET static/...``: :func:`page_files`; the page itself is :func:`render_index`.
- ``GET v1/frontier``: the document.
- ``GET v1/dial``: ``{"tolerance": 0.05, "confidence": null or 0.95, "version": 7, "writable": true,
  "reason": "..."}``. With ``"selected"``, rows by label and group, the page need not look up the
  point, which it can't at another confidence or between its stops. With ``"least_confidence"``,
  the page offers no change with less.
- ``PUT v1/dial`` with ``{"tolerance", "confidence", "reason", "by" (if given)}``,
  ``Authorization: Bearer ...`` and ``If-Match: "version"``, the version that the page shows. Any
  2xx means done. The page explains 401, 403, 409 or 412 (somebody else changed the dial), 422 (it
  shows ``"detail"`` if that is text) and 503 (the change can't be recorded).
- ``GET v1/audit``: ``{"entries": [{"time", "who", "old", "new", "reason", "version", "gap"}]}`` in
  the order in which they are shown; ``time`` in ISO 8601, ``old`` and ``new`` a tolerance or
  ``{"tolerance", "confidence"}``, ``old`` null in the first entry.

Turning the dial makes no request, and the token stays in its input field.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import NamedTuple

from fairdial._files import write_file
from fairdial.core.frontier import Frontier
from fairdial.estimators.base import DialClassifier
from fairdial.serve.page_data import page_data

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
NOTICE = "vendor/uplot/LICENSE.txt"  # must accompany the library

SERVED_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy header under which the served page works."""

_STYLE = re.compile(r'<link rel="stylesheet" href="static/([^"]+)">')
_SCRIPT = re.compile(r'<script src="static/([^"]+)"></script>')
_ICON = re.compile(r'<link rel="icon" href="static/([^"]+)">')


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


def page_files() -> dict[str, PageFile]:
    """Return the files that the server has under ``static/``, by the rest of their path.

    Examples
    --------
    >>> from fairdial.serve.page import page_files
    >>> sorted(page_files())[:3]
    ['app.js', 'charts.js', 'dial.js']
    """
    return {
        path.relative_to(STATIC).as_posix(): PageFile(path.read_bytes(), MEDIA[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA
    }


def render_index() -> str:
    """Return the served page, which loads its parts from ``static/`` and ``v1/``.

    Examples
    --------
    >>> from fairdial.serve.page import render_index
    >>> '<script src="static/app.js"></script>' in render_index()
    True
    """
    return _read(INDEX)


def render_page(document: Mapping[str, object]) -> str:
    """Return the page as one HTML text that needs no network.

    Parameters
    ----------
    document : dict
        The result of :func:`fairdial.serve.page_data.page_data`.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}

    def inline(kind: str) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            text = "\n" + _read(found.group(1)).replace(f"</{kind}", rf"<\/{kind}")
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            hashes[kind].append(f"'sha256-{digest}'")
            return f"<{kind}>{text}</{kind}>"

        return replaced

    page = _STYLE.sub(inline("style"), _read(INDEX))
    data = json.dumps(document, allow_nan=False, ensure_ascii=False).replace("<", r"\u003c")
    block = f'<script type="application/json" id="document">{data}</script>\n'
    first = _SCRIPT.search(page)
    assert first is not None
    page = page[: first.start()] + block + page[first.start() :]
    page = _SCRIPT.sub(inline("script"), page)
    page = _ICON.sub(_inline_icon, page)
    policy = (
        f"default-src 'none'; script-src {' '.join(hashes['script'])}; "
        f"style-src {' '.join(hashes['style'])}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<!-- Contains uPlot:\n\n{html.escape(_read(NOTICE), quote=False)}-->"
    )
    page = page.replace('<meta charset="utf-8">', head, 1)
    title = html.escape(str(document["name"]))
    return page.replace("<title>Fairness dial</title>", f"<title>{title}</title>", 1)


def write_page(
    model: DialClassifier | Frontier,
    path: str | os.PathLike[str],
    *,
    name: str = "Fairness dial",
    people: Mapping[Hashable, str] | Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> Path:
    """Write the page of a model as one HTML file that works offline.

    See ``fairdial.serve.page_data.page_data`` for the parameters, and for what can be read from
    the file. The file is written completely or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.serve.page import write_page
    >>> sample = make_gaussian(2_000, random_state=0)
    >>> frontier = sweep(sample.logits, sample.groups, sample.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_page(frontier, Path(folder) / "dial.html", name="Loans")
    ...     "<title>Loans</title>" in written.read_text("utf-8")
    True
    """
    document = page_data(
        model,
        name=name,
        people=people,
        labels=labels,
        tolerance=tolerance,
        confidence=confidence,
    )
    write_file(path, render_page(document))
    return Path(path)


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _inline_icon(found: re.Match[str]) -> str:
    data = base64.b64encode((STATIC / found.group(1)).read_bytes()).decode()
    return f'<link rel="icon" href="data:image/svg+xml;base64,{data}">'
