"""Folders of Parquet files give the answers of one file, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fairdial.cli import main
from fairdial.datasets import make_gaussian


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A trained model, a file and a folder with the same rows."""
    root = tmp_path_factory.mktemp("place")
    sample = make_gaussian(9000, random_state=0)
    rng = np.random.default_rng(0)
    rows = sample.X.assign(
        id=np.arange(9000),
        job=rng.choice(["clerk", "nurse", None], 9000),
        sex=sample.groups,
        site=rng.choice(["n", "s"], 9000),
        w=rng.integers(1, 4, 9000),
        label=np.where(sample.y == 1, "yes", "no"),
    )
    rows[:3000].to_csv(root / "train.csv", index=False)
    new = rows[3000:].reset_index(drop=True)
    new.to_parquet(root / "new.parquet")
    (root / "new" / "_hidden").mkdir(parents=True)
    (root / "new" / "notes.txt").write_text("not data")
    for part in range(3):
        new[2000 * part : 2000 * (part + 1)].to_parquet(root / "new" / f"{part}.parquet")
    new[:0].to_parquet(root / "new" / "3.parquet")
    done = run(
        root, "train", "train.csv", "--label", "label", "--positive", "yes", "--sensitive", "sex",
        "--drop", "id,site,w", "--method", "logistic", "--tolerance", "0.1", "--out", "model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return root


def run(root, *arguments):
    before = os.getcwd()
    os.chdir(root)
    try:
        done = CliRunner().invoke(main, arguments)
    finally:
        os.chdir(before)
    return done


def read(root, *arguments):
    done = run(root, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_decisions_are_those_of_one_file(place, tmp_path):
    both = []
    for data in ("new", "new.parquet"):
        out = tmp_path / f"{data}.out.parquet"
        found = read(place, "predict", "model", data, "--id", "id,sex", "--out", str(out))
        both.append((pd.read_parquet(out), {k: v for k, v in found.items() if k != "out"}))
    (one, ours), (two, theirs) = both
    pd.testing.assert_frame_equal(one, two, check_dtype=False)
    assert ours == theirs


@pytest.mark.parametrize("options", [(), ("--weights", "w"), ("--control", "site")])
def test_figures_are_those_of_one_file(place, options):
    one, two = (read(place, "evaluate", "model", data, *options) for data in ("new", "new.parquet"))
    assert one == two


def test_calibration_is_that_of_one_file_where_it_is_exact(place, tmp_path):
    thresholds = []
    for data, options in (("new", ("--exact", "0.1")), ("new.parquet", ())):
        out = str(tmp_path / f"{data}.model")
        read(place, "calibrate", "model", data, "--out", out, *options)
        table = tmp_path / f"{data}.csv"
        assert run(place, "export", out, "--thresholds", str(table)).exit_code == 0
        thresholds.append(table.read_text())
    assert thresholds[0] == thresholds[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "model", "new", "--out", "some.csv"),
        ("predict", "model", "new", "--out", "new/4.parquet"),
        ("predict", "model", "new", "--id", "margin", "--out", "some.parquet"),
        ("predict", "model", "new", "--separator", ";", "--out", "some.parquet"),
        ("evaluate", "model", "new", "--label", "nothing"),
        ("evaluate", "model", "new", "--drop-missing"),
        ("calibrate", "model", "new.parquet", "--exact", "0.1", "--out", "other"),
        ("evaluate", "model", "new/_hidden"),
    ],
)
def test_what_folders_cannot_do_is_refused(place, arguments):
    before = {path.name for path in place.iterdir()} | {p.name for p in (place / "new").iterdir()}
    done = run(place, *arguments)
    assert done.exit_code == 2, done.output
    after = {path.name for path in place.iterdir()} | {p.name for p in (place / "new").iterdir()}
    assert before == after


def test_unreadable_files_leave_nothing_behind(place, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "0.parquet").write_bytes((place / "new.parquet").read_bytes())
    (folder / "1.parquet").write_bytes((place / "new.parquet").read_bytes()[:-100])
    done = run(place, "predict", "model", str(folder), "--out", str(tmp_path / "out.parquet"))
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def copy_with(place, folder, change, *, part="1.parquet"):
    """The folder of rows, one file of which is changed."""
    folder.mkdir()
    for file in (place / "new").glob("*.parquet"):
        rows = pd.read_parquet(file)
        (change(rows) if file.name == part else rows).to_parquet(folder / file.name)
    return str(folder)


@pytest.mark.parametrize(
    ("column", "arguments"),
    [
        ("x", ("predict", "--out", "{out}.parquet")),
        ("job", ("predict", "--out", "{out}.parquet")),
        ("id", ("predict", "--id", "id", "--out", "{out}.parquet")),
        ("x", ("evaluate",)),
        ("sex", ("evaluate",)),
        ("label", ("evaluate",)),
        ("w", ("evaluate", "--weights", "w")),
        ("site", ("evaluate", "--control", "site")),
        ("job", ("calibrate", "--out", "{out}")),
        ("label", ("calibrate", "--out", "{out}")),
    ],
)
@pytest.mark.parametrize("change", ["drop", "misspell"])
def test_every_file_must_have_every_column_that_is_needed(
    place, tmp_path, column, arguments, change
):
    renamed = {column: column + "e"} if change == "misspell" else {}
    dropped = [column] if change == "drop" else []
    folder = copy_with(
        place, tmp_path / "rows", lambda rows: rows.rename(columns=renamed).drop(columns=dropped)
    )
    command, *options = (text.format(out=tmp_path / "out") for text in arguments)
    done = run(place, command, "model", folder, *options)
    assert done.exit_code == 2, done.output
    assert "1.parquet" in done.stderr
    assert repr(column) in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_labels_that_only_later_files_have_are_not_ignored(place, tmp_path):
    folder = copy_with(
        place, tmp_path / "rows", lambda rows: rows.drop(columns="label"), part="0.parquet"
    )
    for arguments in (("evaluate",), ("calibrate", "--out", str(tmp_path / "out"))):
        assert run(place, arguments[0], "model", folder, *arguments[1:]).exit_code == 2


def test_other_columns_and_harmless_types_may_differ_between_files(place, tmp_path):
    def change(rows):
        return rows.drop(columns=["site", "id"]).assign(new=1, w=rows["w"].astype("int8"))

    folder = copy_with(place, tmp_path / "rows", change)
    one, two = (
        read(place, "evaluate", "model", data, "--weights", "w") for data in (folder, "new")
    )
    assert one == two


@pytest.mark.parametrize(("column", "value"), [("w", -1), ("label", "perhaps"), ("sex", None)])
def test_errors_name_the_file_and_the_row_within_it(place, tmp_path, monkeypatch, column, value):
    monkeypatch.setattr("fairdial.large.engines.arrow.BATCH", 200)

    def change(rows):
        values = rows[column].astype(object) if isinstance(value, str | None) else rows[column]
        return rows.assign(**{column: values.where(np.arange(len(rows)) != 300, value)})

    folder = copy_with(place, tmp_path / "rows", change)
    done = run(place, "evaluate", "model", folder, *(["--weights", "w"] if column == "w" else []))
    assert done.exit_code == 2, done.output
    assert "1.parquet" in done.stderr
    assert "row 301" in done.stderr


def test_damaged_pages_are_reported_with_their_file(place, tmp_path):
    folder = copy_with(place, tmp_path / "rows", lambda rows: rows)
    damage(tmp_path / "rows" / "1.parquet")
    for arguments in (("evaluate",), ("predict", "--out", str(tmp_path / "out.parquet"))):
        done = run(place, arguments[0], "model", folder, *arguments[1:])
        assert done.exit_code == 2, done.output
        assert "1.parquet" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def damage(file):
    """Overwrite the pages of a Parquet file; its footer stays as it is."""
    held = file.read_bytes()
    size = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
    file.write_bytes(held[:4] + b"\xff" * (size - 4) + held[size:])


@pytest.mark.parametrize("kind", ["marginal", "classes"])
def test_models_that_need_one_file_say_so(place, tmp_path, kind):
    rows = pd.read_csv(place / "train.csv")
    options = ["--sensitive", "sex,site", "--groups", "marginal", "--positive", "yes"]
    if kind == "classes":
        rows["label"] = np.where(rows["w"] == 3, "maybe", rows["label"])
        options = ["--sensitive", "sex"]
    rows.drop(columns=["id", "w"]).to_csv(tmp_path / "train.csv", index=False)
    done = run(
        tmp_path, "train", "train.csv", "--label", "label", *options, "--method", "logistic",
        "--tolerance", "0.1", "--out", "model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for arguments in (("evaluate",), ("calibrate", "--out", "other")):
        done = run(tmp_path, arguments[0], "model", str(place / "new"), *arguments[1:])
        assert done.exit_code == 2, done.output
        assert "DATA" in done.stderr
        assert "one file" in done.stderr


def test_a_killed_command_leaves_no_half_written_file(place, tmp_path):
    folder, out = tmp_path / "many", tmp_path / "out.parquet"
    folder.mkdir()
    for part in range(60):
        os.link(place / "new.parquet", folder / f"{part:02}.parquet")
    command = ["-m", "fairdial", "predict", str(place / "model"), str(folder), "--out", str(out)]
    process = subprocess.Popen([sys.executable, *command])
    while not any(p.name.endswith(".part") for p in tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    assert subprocess.run([sys.executable, *command], check=True).returncode == 0
    assert len(pd.read_parquet(out)) == 60 * 6000
