"""Small groups and further labels: they become one, in every command and on the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial.cli.columns import find_small
from fairdial.serve.deciding import Decider
from fairdial.tables.values import merge_groups

COMMON = ("--label", "decision", "--positive", "approve", "--method", "logistic",
          "--tolerance", 0.2, "--min-count", 5)  # fmt: skip
Shell = Callable[..., Any]


@pytest.fixture(scope="module")
def table(old: pd.DataFrame) -> pd.DataFrame:
    """Regions of 20, 30 and many rows; some decisions are put off."""
    found = old[["income", "children", "sex", "region", "decision"]].copy()
    found.loc[:19, "region"] = "isle"
    found.loc[20:49, "region"] = "cape"
    return found


def written(path: Path, table: pd.DataFrame) -> Path:
    table.to_csv(path, index=False)
    return path


def decided(model: Path, data: Path, out: Path, shell: Shell) -> pd.DataFrame:
    shell("predict", model, data, "--out", out, "--overwrite")
    return pd.read_csv(out)


@pytest.mark.parametrize("sensitive", [["region"], ["region", "sex"]])
@pytest.mark.parametrize("numbers", [False, True])
def test_small_groups_are_those_of_a_table_in_which_they_are_one(
    sensitive: list[str], numbers: bool, table: pd.DataFrame, tmp_path: Path, shell: Shell,
    answer: Shell,
) -> None:  # fmt: skip
    if numbers:
        names = {"isle": 1, "cape": 2, "north": 3, "south": 4}
        table = table.assign(region=table["region"].map(names))
    sizes = table.groupby(sensitive)["income"].transform("size")
    by_hand = table.assign(**{name: table[name].astype(str).mask(sizes < 40, "Other")
                              for name in sensitive})  # fmt: skip
    path, other = written(tmp_path / "a.csv", table), written(tmp_path / "b.csv", by_hand)
    common = (*COMMON, "--sensitive", ",".join(sensitive), "--json")
    shell("train", other, *common, "--out", tmp_path / "n")
    found = shell("train", path, *common, "--merge-small", 40, "--out", tmp_path / "m")
    model = fairdial.load(tmp_path / "m")
    assert " & ".join(["Other"] * len(sensitive)) in model.frontier_.groups
    assert model.frontier_.groups == fairdial.load(tmp_path / "n").frontier_.groups
    ours = decided(tmp_path / "m", path, tmp_path / "x.csv", shell)
    pd.testing.assert_frame_equal(ours, decided(tmp_path / "n", other, tmp_path / "x.csv", shell))
    only = written(tmp_path / "c.csv", table.head(20))  # all of them small
    pd.testing.assert_frame_equal(
        decided(tmp_path / "m", only, tmp_path / "x.csv", shell), ours.head(20)
    )
    tables = ("evaluate", tmp_path / "m", path), ("evaluate", tmp_path / "n", other)
    first, second = (answer(*given) for given in tables)
    assert first["groups"] == second["groups"]
    assert json.loads(found.stdout)["merged_groups"] == model.training_["merged_groups"]


def test_without_small_groups_nothing_changes(
    table: pd.DataFrame, tmp_path: Path, shell: Shell
) -> None:
    path = written(tmp_path / "a.csv", table)
    common = (*COMMON, "--sensitive", "sex", "--out", tmp_path / "m")
    shell("train", path, *common, "--merge-small", 40)
    assert "merged_groups" not in fairdial.load(tmp_path / "m").training_


def test_a_server_knows_the_groups_that_were_merged(
    table: pd.DataFrame, tmp_path: Path, shell: Shell
) -> None:
    path = written(tmp_path / "a.csv", table)
    common = (*COMMON, "--sensitive", "region,sex", "--merge-small", 40)
    shell("train", path, *common, "--out", tmp_path / "m")
    decider = Decider(fairdial.load(tmp_path / "m"))
    other = decider.groups.index("Other & Other")
    assert decider.codes(["isle & F", "cape & M", "Other & Other"]).tolist() == [other] * 3
    assert set(decider.merged) == {"isle & F", "isle & M", "cape & F", "cape & M"}
    assert decider.codes(["north & F"]).tolist() == [decider.groups.index("north & F")]


def test_merging_is_exact_on_any_columns() -> None:
    rng = np.random.default_rng(0)
    columns = pd.DataFrame({"a": rng.integers(0, 5, 300), "b": rng.choice(["x", "y", None], 300)})
    for least in (1, 20, 30, 400):
        complete = columns.dropna()
        small = find_small(complete, least)
        sizes = complete.groupby(["a", "b"])["a"].transform("size")
        want = complete.astype(str).mask(sizes < least, "Other")
        found = pd.DataFrame(merge_groups(complete, {"name": "Other", "values": small}))
        assert found.to_numpy().tolist() == want.to_numpy().tolist()
        again = pd.DataFrame(merge_groups(columns, {"name": "Other", "values": small}))
        assert again.isna().equals(columns.isna())


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_labels_are_those_of_a_table_in_which_they_are_one(
    numbers: bool, kind: str, table: pd.DataFrame, tmp_path: Path, answer: Shell
) -> None:
    positive = "2" if numbers else "approve"
    later = np.random.default_rng(0).random(len(table)) < 0.2
    labels = table["decision"].mask(later, "later")
    by_hand = table.assign(decision=labels.where(labels == "approve", f"not {positive}"))
    if numbers:
        by_hand["decision"] = by_hand["decision"].replace("approve", positive)
        labels = labels.map({"approve": 2, "deny": 0, "later": 1})
    several = table.assign(decision=labels)
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for data, path in zip((several, by_hand), paths, strict=True):
        data.to_parquet(path) if kind == "parquet" else data.to_csv(path, index=False)
    common = ("--label", "decision", "--positive", positive, "--sensitive", "sex", "--method",
              "logistic", "--tolerance", 0.2)  # fmt: skip
    first, second = (
        answer("train", path, *common, "--out", tmp_path / path.stem) for path in paths
    )
    assert first["frontier"] == second["frontier"]
    assert first["positive"] == positive
    evaluated = [answer("evaluate", tmp_path / "a", path) for path in paths]
    assert evaluated[0]["accuracy"] == evaluated[1]["accuracy"]


def test_other_labels_than_those_of_training_are_refused(
    table: pd.DataFrame, tmp_path: Path, shell: Shell, refused: Shell
) -> None:
    labels = table["decision"].mask(table.index % 5 == 0, "later")
    path = written(tmp_path / "a.csv", table.assign(decision=labels))
    shell("train", path, *COMMON, "--sensitive", "sex", "--out", tmp_path / "m")
    new = written(tmp_path / "b.csv", table.assign(decision=labels.replace("later", "never")))
    refused("evaluate", tmp_path / "m", new, option="DATA", names=("'never'",))
    without = [part for part in COMMON if part not in ("--positive", "approve")]
    shell("train", path, *without, "--sensitive", "sex", "--out", tmp_path / "n")  # three classes
    refused("evaluate", tmp_path / "n", new, option="DATA", names=("'never'",))
