"""Fuzzing: whatever a folder, a table or a request holds, it is used or refused by name.

``make test`` draws a few examples of each; ``make fuzz`` draws new ones until its time is over. A
failure is repeated by the same command, because hypothesis keeps it in ``.hypothesis``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes, FairdialError
from fairdial.cli import main
from fairdial.errors import FairdialWarning

EXAMPLES = int(os.environ.get("FAIRDIAL_FUZZ_EXAMPLES", "25"))
ROWS = 240
FUZZED = settings(
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PIECES = [b"\x00", b"\xff" * 8, b"\n", b'"', b",", b"NaN", b"1e309", b"-0", b"{}", b"[]", b"null"]


def people(n: int, seed: int) -> pd.DataFrame:
    """A table of numbers and text, with a group and a label."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.normal(30, 9, n).round(2),
            "job": rng.choice(["care", "craft", "office"], n),
            "sex": rng.choice(["F", "M"], n),
        }
    )
    score = (table["income"] - 30) / 9 + (table["sex"] == "M")
    table["repaid"] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    return table


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved models, and a table that the command line's model fits."""
    folder = tmp_path_factory.mktemp("fuzz")
    people(600, 0).to_csv(folder / "old.csv", index=False)
    people(ROWS, 1).to_csv(folder / "new.csv", index=False)
    asked = ("--label", "repaid", "--positive", "yes", "--sensitive", "sex", "--tolerance", "0.1")
    for method in ("boosting", "logistic"):
        out = ("--method", method, "--out", str(folder / method), "--quiet")
        done = CliRunner().invoke(main, ["train", str(folder / "old.csv"), *asked, *out])
        assert done.exit_code == 0, done.output
    table = people(600, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        model = FairBayes(LogisticRegression(), criterion="equalized_odds", min_count=10)
        model.set_params(random_state=0)
        model.fit(table[["age", "income"]], table["repaid"], sensitive_features=table["sex"])
    model.save(folder / "odds")
    return folder


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Return bytes with some flipped, cut out, put in or repeated."""
    found = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        end = min(len(found), at + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["flip", "cut", "put", "repeat", "end"]))
        if kind == "flip" and at < len(found):
            found[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del found[at:end]
        elif kind == "put":
            found[at:at] = draw(st.sampled_from(PIECES) | st.binary(max_size=8))
        elif kind == "repeat":
            found[at:at] = found[at:end]
        elif kind == "end":
            del found[at:]
    return bytes(found)


def sign(folder: Path) -> None:
    """Make all hashes of a folder right, so that damage gets past them."""
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_bytes())
    for name in data["files"]:
        body = (folder / name).read_bytes()
        data["files"][name] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    manifest.write_bytes(json.dumps(data).encode())
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    (folder / "manifest.sha256").write_text(f"{digest}  manifest.json\n")


@given(st.data())
@FUZZED
def test_a_damaged_folder_is_refused_or_decides(place: Path, tmp_path: Path, data: Any) -> None:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    name = data.draw(st.sampled_from(["boosting", "logistic", "odds"]))
    shutil.copytree(place / name, folder)
    names = sorted(path.name for path in folder.iterdir() if path.name != "MODEL_CARD.md")
    file = data.draw(st.sampled_from(names))
    (folder / file).write_bytes(data.draw(damaged((folder / file).read_bytes())))
    if file not in ("manifest.json", "manifest.sha256") and data.draw(st.booleans()):
        sign(folder)
    rows = people(20, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fairdial.load(folder)
            given = {} if model.sensitive_column else {"sensitive_features": rows["sex"]}
            columns = [*model.feature_names_in_, *([] if given else ["sex"])]
            found = model.predict(rows[columns], **given)
    except FairdialError:
        return
    assert len(found) == len(rows)
    assert set(found) <= {"yes", "no"}


CELLS = st.sampled_from(
    ["", " ", "NA", "nan", "inf", "-inf", "1e309", "-0", "0x1F", "1_000", "١٢", "=1+1", "\x00", "é",
     "e\u0301", "\u200b", "\ufeff", '"', '""', "'", ",", ";", "\n", "\r", "\t", "F", "M", "yes",
     "2020-01-01", "true", "9" * 30, "x" * 2_000, "\ud7ff", "<b>", "\x1b[2J"]
)  # fmt: skip
HEADS = st.sampled_from(["age", "income", "job", "sex", "repaid", "", "age ", "AGE", "Unnamed: 0"])


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Return a CSV file: a good one with hostile cells and heads, or one with damaged bytes."""
    table = people(30, draw(st.integers(0, 3))).astype(object)
    for _ in range(draw(st.integers(0, 4))):
        table.iat[draw(st.integers(0, 29)), draw(st.integers(0, 4))] = draw(CELLS)
    if draw(st.booleans()):
        table = table.set_axis([draw(HEADS) if i == 2 else c for i, c in enumerate(table)], axis=1)
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    written = io.StringIO(newline="")
    rows = csv.writer(
        written, quoting=quoting, lineterminator=draw(st.sampled_from(["\n", "\r\n"]))
    )
    rows.writerows([list(table), *table.to_numpy().tolist()])
    coding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]))
    body = written.getvalue().encode(coding, "replace")
    return draw(damaged(body)) if draw(st.booleans()) else body


def run(*arguments: object) -> Any:
    """Run a command: it succeeds, or refuses in a sentence of its own."""
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert isinstance(found.exception, SystemExit | None), found.output
    assert found.exit_code in (0, 1, 2), found.output
    assert "--debug shows the traceback" not in found.output, found.output
    assert "\x1b" not in found.output
    return found


@given(tables(), st.sampled_from(["predict", "evaluate", "report"]))
@FUZZED
def test_a_hostile_table_is_decided_or_refused(
    place: Path, tmp_path: Path, body: bytes, command: str
) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    path.write_bytes(body)
    if command == "report":
        run("report", place / "logistic", path, "--out", tmp_path / "report.html", "--overwrite")
        return
    if command == "evaluate":
        run("evaluate", place / "logistic", path, "--json")
        return
    found = run("predict", place / "logistic", path, "--out", out, "--overwrite")
    if found.exit_code == 0:
        decided = pd.read_csv(out)["decision"]
        assert set(decided) <= {"yes", "no"}
        text = body.decode("utf-8-sig")
        lines = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        assert len(decided) == len(lines) - 1


@given(st.data())
@FUZZED
def test_a_hostile_parquet_file_is_decided_or_refused(
    place: Path, tmp_path: Path, data: Any
) -> None:
    path, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    table = people(30, 3)
    kinds = ["Int8", "Float32", "string", "category", "boolean", "object", "bool", "datetime64[ns]"]
    for _ in range(data.draw(st.integers(0, 3))):
        column = data.draw(st.sampled_from(list(table)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                changed = table[column].astype(data.draw(st.sampled_from(kinds)))
            except (TypeError, ValueError):
                continue
            table = table.assign(**{column: changed})
    if data.draw(st.booleans()):
        table = pd.concat(
            [table, table[["age"]].add_prefix(data.draw(st.text(max_size=3)))], axis=1
        )
    table = table.loc[:, ~table.columns.duplicated()]
    table.to_parquet(path)
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged(path.read_bytes())))
    found = run("predict", place / "logistic", path, "--out", out, "--overwrite")
    if found.exit_code == 0:
        assert len(pd.read_parquet(out)) == len(pd.read_parquet(path))
