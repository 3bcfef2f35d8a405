"""A table of loans as files, models trained on it by the command line, and a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from fairdial.cli import main

ROWS, NEW = 1600, 700

Shell = Callable[..., Result]


def loans(n: int, seed: int) -> pd.DataFrame:
    """Numbers, whole numbers, truth values, texts, missing values, two sensitive columns."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "number": [f"loan {i}" for i in range(n)],
            "region": rng.choice(["north", "south"], n, p=[0.6, 0.4]),
            "sex": rng.choice(["F", "M"], n),
            "job": rng.choice(["office", "craft", "care"], n),
            "children": rng.integers(0, 4, n),
            "owner": rng.random(n) < 0.4,
            "half": rng.choice([0.5, 1.0], n),
        }
    )
    income = rng.normal(0.9 * (table["region"] == "north") + 0.4 * (table["sex"] == "M"), 1.0)
    table["income"] = np.where(rng.random(n) < 0.03, np.nan, income)
    score = 1.5 * income + 0.8 * table["owner"] + 0.4 * (table["job"] == "office") - 1.2
    table["decision"] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "approve", "deny")
    table.loc[rng.random(n) < 0.02, "job"] = None
    return table


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with old.csv, old.parquet, new.csv and new.parquet."""
    folder = tmp_path_factory.mktemp("loans")
    for name, table in (("old", loans(ROWS, 0)), ("new", loans(NEW, 1))):
        table.to_csv(folder / f"{name}.csv", index=False)
        table.to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="session")
def old() -> pd.DataFrame:
    return loans(ROWS, 0)


@pytest.fixture(scope="session")
def new() -> pd.DataFrame:
    return loans(NEW, 1)


def ask(*arguments: Any, code: int = 0) -> Result:
    """Run a command in this process; its exit code must be this."""
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output + repr(found.exception)
    assert "Traceback" not in found.output
    return found


@pytest.fixture(scope="session")
def shell() -> Shell:
    return ask


@pytest.fixture(scope="session")
def refused() -> Callable[..., str]:
    """Run a command that must refuse an option, and return the error: one line that names it."""

    def run(*arguments: Any, option: str, names: tuple[str, ...] = (), code: int = 2) -> str:
        found = ask(*arguments, code=code)
        line = found.stderr.splitlines()[-1]
        assert line.startswith(f"Error: {option} "), line
        assert [name for name in names if name not in line] == [], line
        assert "`" not in line
        assert found.stdout == ""
        return line

    return run


@pytest.fixture(scope="session")
def answer() -> Callable[..., Any]:
    """Run a command with --json, which prints JSON and nothing else."""
    return lambda *arguments: json.loads(ask(*arguments, "--json").stdout)


NARROW = ("--criterion", "demographic_parity", "--criterion", "selection_rate>=0.4",
          "--criterion", "selection_rate<=0.6")  # fmt: skip
COMMON = ("--label", "decision", "--positive", "approve", "--drop", "number,half")


@pytest.fixture(scope="session")
def model(place: Path) -> Path:
    """Logistic regression, two groups, demographic parity."""
    out = place / "model"
    ask("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
        "--tolerance", 0.1, "--out", out)  # fmt: skip
    return out


@pytest.fixture(scope="session")
def narrow(place: Path) -> Path:
    """Selection rates between 0.4 and 0.6, which no thresholds make equal."""
    out = place / "narrow"
    ask("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
        *NARROW, "--tolerance", 0.1, "--out", out)  # fmt: skip
    return out


@pytest.fixture(scope="session")
def crossed(place: Path) -> Path:
    """Gradient boosting, intersections of two columns, equal opportunity."""
    out = place / "crossed"
    ask("train", place / "old.parquet", *COMMON, "--sensitive", "region,sex", "--criterion",
        "equal_opportunity", "--tolerance", 0.2, "--out", out)  # fmt: skip
    return out
