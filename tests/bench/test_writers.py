"""What one format's special characters would break stays where it belongs."""

from __future__ import annotations

from fairdial.bench.tables import Table
from fairdial.bench.writers import to_latex, to_markdown


def test_a_line_break_cannot_leave_its_cell():
    table = Table("c", ("a", "b"), (("x\n| y", "z\nw"),), label="tab:t")
    assert r"| x \| y | z w |" in to_markdown("t\nu", [table])
    tex = to_latex("t\n\\evil", [table])
    assert r"x \textbar{} y & z w \\" in tex
    assert all(line.startswith("%") for line in tex.splitlines() if "evil" in line)


def test_signs_of_numbers_become_mathematics_but_words_keep_their_hyphens():
    table = Table("c", ("a", "b"), (("semi-2 re-run", "-0.5 ± 0.1"),), label="tab:t")
    assert r"semi-2 re-run & $-$0.5 $\pm$ 0.1 \\" in to_latex("t", [table])
