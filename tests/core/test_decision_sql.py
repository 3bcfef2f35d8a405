"""Databases decide as the frontier does, to the last row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial import measure, sweep
from fairdial._sql import DIALECTS
from fairdial.core.decision_sql import write_decision
from fairdial.core.frontier import Frontier
from fairdial.errors import InvalidInputError

Run = Callable[[str, pd.DataFrame], list[Any]]
ODD_NAMES = ["it's", 'say "yes"', "back\\slash", "50%", "two\nlines", "Zoë", "; DROP TABLE rows"]


def in_duckdb(rule: str, rows: pd.DataFrame) -> list[Any]:
    """The decisions of DuckDB, one for each row."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = connection.execute(f"SELECT {rule} FROM rows ORDER BY number").fetchall()
    return [line[0] for line in found]


def in_sqlite(rule: str, rows: pd.DataFrame) -> list[Any]:
    """The decisions of SQLite, one for each row; it stores NaN as NULL."""
    with sqlite3.connect(":memory:") as connection:
        rows.to_sql("rows", connection, index=False)
        found = connection.execute(f"SELECT {rule} FROM rows ORDER BY number").fetchall()
    return [line[0] for line in found]


ENGINES = {"duckdb": in_duckdb, "sqlite": in_sqlite}


def numbered(score: object, group: object) -> pd.DataFrame:
    frame = pd.DataFrame({"score": score, "group": group})
    return frame.assign(number=np.arange(len(frame)))


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = np.array(ODD_NAMES)[rng.integers(0, len(ODD_NAMES), 4_000)]
    scores = rng.normal(size=4_000).round(2)  # ties, also with thresholds
    return scores, groups, (rng.random(4_000) < 1 / (1 + np.exp(-scores))).astype(int)


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_databases_decide_as_python_does(dialect: str, dtype: Any, sample: Any) -> None:
    scores, groups, y = sample
    scores = scores.astype(dtype)
    frontier = sweep(scores, groups, y)
    for tolerance in (0.01, 0.03, 0.1, 1.0):
        rule = frontier.to_sql(tolerance, dialect=dialect)
        decided = ENGINES[dialect](rule, numbered(scores, groups))
        assert decided == frontier.decide(scores, groups, tolerance).astype(int).tolist()


@pytest.mark.parametrize("dialect", ENGINES)
def test_rows_on_and_beside_a_threshold_are_told_apart(dialect: str) -> None:
    rng = np.random.default_rng(1)
    limits = rng.normal(size=300) * 10.0 ** rng.integers(-12, 12, 300)
    limits[:4] = 0.0, 5e-324, 1e308, -(2.0**-60)
    for limit in limits.tolist():
        scores = np.array([np.nextafter(limit, -np.inf), limit, np.nextafter(limit, np.inf)])
        rule = write_decision(
            np.array([limit]), ["a"], score="score", group="group", dialect=dialect
        )
        decided = ENGINES[dialect](rule, numbered(scores, ["a"] * 3))
        assert decided == (scores > limit).astype(int).tolist(), limit


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize(("limit", "selected"), [(np.inf, [0, 0, 0]), (-np.inf, [0, 1, 1])])
def test_infinite_thresholds(dialect: str, limit: float, selected: list[int]) -> None:
    rule = write_decision(np.array([limit]), ["a"], score="score", group="group", dialect=dialect)
    rows = numbered([-np.inf, 0.0, np.inf], ["a"] * 3)
    assert ENGINES[dialect](rule, rows) == selected


@pytest.mark.parametrize("dialect", ENGINES)
def test_rows_that_python_refuses_have_no_decision(dialect: str) -> None:
    limits = np.array([-1.0, -1.0])
    rule = write_decision(limits, ["a", "b"], score="score", group="group", dialect=dialect)
    rows = numbered([np.nan, 0.0, 0.0, 0.0, np.nan], ["a", "c", None, "b", None])
    assert ENGINES[dialect](rule, rows) == [None, None, None, 1, None]
    known = write_decision(
        limits, ["a", "b"], score="score", group="group", dialect=dialect, missing_group="a"
    )
    assert ENGINES[dialect](known, rows) == [None, None, 1, 1, None]
    merged = write_decision(
        np.array([-1.0, 1.0]),
        ["a", "b"],
        score="score",
        group="group",
        dialect=dialect,
        merged_groups={"b": ["c", "it's"]},
    )
    rows = numbered([0.0, 0.0, 2.0, 2.0, 2.0], ["a", "c", "c", "it's", "d"])
    assert ENGINES[dialect](merged, rows) == [1, 0, 1, 1, None]


@pytest.mark.parametrize("dialect", ENGINES)
def test_groups_may_be_several_columns_numbers_or_booleans(dialect: str) -> None:
    rng = np.random.default_rng(2)
    scores, y = rng.normal(size=900), rng.integers(0, 2, 900)
    pairs = pd.DataFrame({"sex": rng.choice(["F", "M"], 900), "race": rng.choice(["A", "B"], 900)})
    frontier = sweep(scores, pairs, y)
    rows = pairs.assign(score=scores, number=np.arange(900))
    rule = frontier.to_sql(0.05, group=["sex", "race"], dialect=dialect)
    assert ENGINES[dialect](rule, rows) == frontier.decide(scores, pairs, 0.05).tolist()
    for names in (pairs["sex"] == "F", (pairs["sex"] == "F") * 3 + 2):
        frontier = sweep(scores, names, y)
        rule = frontier.to_sql(0.05, dialect=dialect)
        decided = ENGINES[dialect](rule, numbered(scores, names))
        assert decided == frontier.decide(scores, names, 0.05).tolist()


@settings(max_examples=40)
@given(st.text(max_size=20), st.sampled_from(list(ENGINES)))
def test_no_name_leaves_its_quotes(name: str, dialect: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    if "\0" in name:  # no database stores it
        return
    rule = write_decision(np.array([0.0]), [name], score=name or "z", group="g", dialect=dialect)
    rows = pd.DataFrame({name or "z": [1.0, -1.0], "g": [name, name], "number": [0, 1]})
    if len(rows.columns) == 3 and name.casefold() not in ("g", "number"):
        assert ENGINES[dialect](rule, rows) == [1, 0]


def test_what_has_no_sql_is_refused(sample: Any) -> None:
    scores, groups, y = sample
    frontier = sweep(scores, groups, y)

    def refused(argument: str, call: Callable[[], object]) -> None:
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.argument == argument

    refused("dialect", lambda: frontier.to_sql(0.05, dialect="cobol"))
    refused("group", lambda: frontier.to_sql(0.05, group=[]))
    refused("score", lambda: frontier.to_sql(0.05, score="a`b", dialect="spark"))
    refused("tolerance", lambda: frontier.to_sql([0.05, 0.1]))  # type: ignore[arg-type]
    refused("groups", lambda: sweep(scores, np.where(y, 0.5, 1.5), y).to_sql(0.05))
    family = measure(np.stack([scores, scores + 1]), groups, y)
    refused("to_sql", lambda: family.to_sql(0.05))
    lottery: Frontier = sweep(
        scores, groups == ODD_NAMES[0], y, criterion="equalized_odds", randomize="hash"
    )
    refused("to_sql", lambda: lottery.to_sql(0.05))


def test_every_dialect_writes_every_part() -> None:
    for name in DIALECTS:
        rule = write_decision(
            np.array([0.1, -np.inf]), ODD_NAMES[:2], score="z", group=["a", "b"], dialect=name
        )
        assert rule.count("WHEN") == 5
        assert rule.count("END") == 3
