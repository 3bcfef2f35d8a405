"""The page where anyone can turn the dial: one file that works offline, or files for the server.

The same files make both. The exported page holds scripts, styles and the document of
:func:`fairdial.serve.page_data.page_data` in itself, and asks nobody for anything. The served page
asks its server, by paths relative to its own address:

- ``GET static/...``: :func:`page_files`; the page itself is :func:`render_index`.
- ``GET v1/frontier``: the document.
- ``GET v1/dial``: ``{"tolerance": 0.05, "confidence": null or 0.95, "version": 7, "writable": true,
  "reason": "..."}``; with ``"selected"``, rows by label and group, the page needn't look the
  position up (it can't where the position has another confidence, or lies between its stops);
  with ``"least_confidence"``, positions with less can't be applied.
- ``PUT v1/dial`` with ``{"tolerance", "confidence", "reason", "by" (if given)}``,
  ``Authorization: Bearer ...`` and ``If-Match: "version"``, the version that the page has seen. Any
  2xx is done. The page has words for 401, 403, 409 (or 412: the dial was moved meanwhile), 422 (a
  ``"detail"`` that is text is shown) and 503 (the change can't be recorded).
- ``GET v1/audit``: ``{"entries": [{"time", "who", "old", "new", "reason", "version", "gap"}]}`` in
  the order in which they are to be shown; ``time`` in ISO 8601, ``old`` and ``new`` a tolerance or
  ``{"tolerance", "confidence"}``, ``old`` null the first time.

Nothing is asked while the dial is being moved, and the token is kept in its field only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from fairdial.frontier import Frontier
from fairdial.methods.base import DialClassifier
from fairdial.serve.page_data import page_data

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
NOTICE = "vendor/uplot/LICENSE.txt"  # goes with the library wherever it goes

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
    """What the server gives under ``static/``, by the rest of its path.

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
    """The served page: it loads its parts from ``static/`` and its document from ``v1/``.

    Examples
    --------
    >>> from fairdial.serve.page import render_index
    >>> '<script src="static/app.js"></script>' in render_index()
    True
    """
    return _read(INDEX)


def render_page(document: Mapping[str, Any]) -> str:
    """The page with everything in it: one HTML text that needs no network.

    Parameters
    ----------
    document : dict
        What :func:`fairdial.serve.page_data.page_data` gave.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}

    def inline(kind: str) -> Any:
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
    people: Mapping[Hashable, str] | None = None,
    labels: tuple[str, str] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> Path:
    """Write the page of a model as one HTML file that works offline.

    The parameters are those of ``fairdial.serve.page_data.page_data``; what can be read from
    the file is said there. The file appears whole or not at all.

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
    goal = Path(path)
    half = goal.with_name(f".{goal.name}.{uuid4().hex}.part")
    try:
        half.write_text(render_page(document), "utf-8")
        os.replace(half, goal)
    finally:
        half.unlink(missing_ok=True)
    return goal


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _inline_icon(found: re.Match[str]) -> str:
    data = base64.b64encode((STATIC / found.group(1)).read_bytes()).decode()
    return f'<link rel="icon" href="data:image/svg+xml;base64,{data}">'
