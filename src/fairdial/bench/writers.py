"""The blocks of a report, written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairdial.bench.tables import Table


class Heading(NamedTuple):
    """A heading of level 2 or 3."""

    level: int
    text: str


class Text(NamedTuple):
    """A paragraph; urgent ones are highlighted."""

    text: str
    urgent: bool = False


class Items(NamedTuple):
    """A bulleted list."""

    items: tuple[str, ...]


class Drawing(NamedTuple):
    """A figure, by name."""

    name: str
    caption: str


Block = Heading | Text | Items | Table | Drawing


# ---- Markdown ----------------------------------------------------------------------------------


def to_markdown(title: str, blocks: list[Block]) -> str:
    """Return the report as Markdown; figures are files beside it."""
    parts = [f"# {_md(title)}"]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {_md(block.text)}")
        elif isinstance(block, Text):
            parts.append(f"> **Note.** {_md(block.text)}" if block.urgent else _md(block.text))
        elif isinstance(block, Items):
            parts.append("\n".join(f"- {_md(item)}" for item in block.items))
        elif isinstance(block, Drawing):
            alt = _md(block.caption.partition(".")[0])
            parts.append(f"![{alt}](figures/{block.name}.png)")
            parts.append(f"*{_md(block.caption)}*")
        else:
            parts += [f"**{_md(block.caption)}**", markdown_table(block)]
            parts += [_md(block.note)] if block.note else []
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """Return the head and rows of a table as Markdown."""
    line = "|---" * len(table.head) + "|"
    return "\n".join([_md_row(table.head), line, *map(_md_row, table.rows)])


def _md(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<|~$&#])", r"\\\1", " ".join(text.split()))


def _md_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_md, cells)) + " |"


# ---- LaTeX -------------------------------------------------------------------------------------

TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
WIDE = 7  # columns


def to_latex(title: str, blocks: list[Block]) -> str:
    """Return the labeled tables, for a paper that uses booktabs."""
    found = [block for block in blocks if isinstance(block, Table) and block.label]
    head = f"% {' '.join(title.split())}\n% UTF-8; needs \\usepackage{{booktabs}}\n"
    return head + "".join(f"\n{_tex_table(table)}" for table in found)


def _tex_table(table: Table) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\scriptsize" if len(table.head) > WIDE else r"\small",
        rf"\caption{{{_tex(' '.join((table.caption, table.note)).strip())}}}",
        rf"\label{{{table.label}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
        r"\toprule",
        _tex_row(table.head),
        r"\midrule",
        *map(_tex_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    escaped = "".join(TEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w-])([+-])(?=\d)", r"$\1$", escaped)


def _tex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"


# ---- HTML --------------------------------------------------------------------------------------

LONG = 45  # characters: longer cells are prose, and may wrap
CSS = """
:root { color-scheme: light dark; --ink: #1d1d20; --soft: #5a5a62; --page: #fdfdfc;
  --line: #d9d9dd; --stripe: #f3f3f1; --accent: #0b6aa2; --alert: #fff1d6; --edge: #c77700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7ea; --soft: #a6a6b0; --page: #16171b;
  --line: #3a3b42; --stripe: #1f2026; --accent: #6cbcf0; --alert: #33280f; --edge: #e0a030; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 62rem; color: var(--ink);
  background: var(--page); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p, li { max-width: 46rem; }
a { color: var(--accent); }
nav ol { columns: 16rem; padding-left: 0; list-style: none; }
.alert { background: var(--alert); border-left: .3rem solid var(--edge); padding: .7rem 1rem; }
.scroll { overflow-x: auto; margin: 1rem 0 .3rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top; }
td { white-space: nowrap; }
table.prose td { white-space: normal; min-width: 7rem; }
thead th { border-bottom: 1px solid var(--soft); font-weight: 600; vertical-align: bottom; }
tbody tr { background: var(--page); }
tbody tr:nth-child(even) { background: var(--stripe); }
tbody th { font-weight: 500; min-width: 8rem; position: sticky; left: 0; background: inherit; }
.note, figcaption { color: var(--soft); font-size: .86rem; margin: 0 0 1.2rem; max-width: 46rem; }
figure { margin: 1.4rem 0; }
figure svg { display: block; width: 100%; height: auto; }
@media print { nav { display: none; } .scroll { overflow: visible; } }
"""


def to_html(title: str, blocks: list[Block], drawn: dict[str, str]) -> str:
    """Return one self-contained page; ``drawn`` has the figures as SVG elements by name."""
    headings = [b.text for b in blocks if isinstance(b, Heading) and b.level == 2]
    links = "".join(
        f'<li><a href="#part-{i}">{html.escape(text)}</a></li>' for i, text in enumerate(headings)
    )
    numbers = iter(range(len(headings)))
    body = "\n".join(_html_block(block, drawn, numbers) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _html_block(block: Block, drawn: dict[str, str], numbers: Iterator[int]) -> str:
    if isinstance(block, Heading):
        place = f' id="part-{next(numbers)}"' if block.level == 2 else ""
        return f"<h{block.level}{place}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        attributes = ' class="alert" role="note"' if block.urgent else ""
        return f"<p{attributes}>{html.escape(block.text)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in block.items)}</ul>"
    if isinstance(block, Drawing):
        caption = html.escape(block.caption)
        svg = drawn[block.name].replace("<svg", f'<svg role="img" aria-label="{caption}"', 1)
        return (
            f'<figure><div class="scroll" tabindex="0">{svg}</div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return _html_table(block)


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.head)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
        + "</tr>"
        for first, *others in table.rows
    )
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    caption = html.escape(table.caption)
    long = any(len(cell) > LONG for row in table.rows for cell in row[1:])
    prose = ' class="prose"' if long else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f"<table{prose}><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )
