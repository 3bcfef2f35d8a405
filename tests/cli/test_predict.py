"""``fairdial predict``: the estimator's decisions, row by row, from any file."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import fairdial
from fairdial import FairBayes, FairdialWarning, InvalidInputError, Network
from fairdial.cli.model_rows import read_rows
from fairdial.cli.reading import read_table
from fairdial.estimators.learners import boosting, logistic
from fairdial.estimators.plain import PlainScorer
from fairdial.tables.values import as_text

NOISE = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i % 9973) for i in range(5000))
PACKED = gzip.compress(NOISE, mtime=0)
EXACT = {} if pd.__version__ >= "3.1" else {"float_precision": "round_trip"}


def written(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, **EXACT)


@pytest.mark.parametrize("kind", ["csv", "parquet", "csv.gz"])
def test_decisions_and_margins_are_the_estimators(
    kind: str, model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    data, out = place / f"new.{kind.removesuffix('.gz')}", tmp_path / f"out.{kind}"
    result = answer("predict", model, data, "--tolerance", 0.05, "--id", "number", "--out", out)
    found = fairdial.load(model)
    rows = read_rows(found, data)
    table, X = rows.table, rows.X
    decisions = written(out)
    assert decisions.columns.tolist() == ["number", "decision", "margin", "logit"]
    assert decisions["number"].tolist() == table["number"].tolist()
    assert decisions["decision"].tolist() == found.predict(X, tolerance=0.05).tolist()
    assert np.array_equal(decisions["margin"], found.decision_function(X, tolerance=0.05))
    assert np.array_equal(decisions["logit"], found.logits(X))
    assert result == {
        "out": str(out),
        "rows": 700,
        "selected": int((decisions["decision"] == "approve").sum()),
        "tolerance": 0.05,
        "confidence": None,
        "simultaneous": None,
        "positive": "approve",
        "hash": found.model_hash_,
    }


def test_every_row_is_scored_once_and_the_file_is_opened_once(
    model: Path, place: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, opened = [], []
    logits, read_bytes = PlainScorer.logits, Path.read_bytes
    monkeypatch.setattr(
        PlainScorer, "logits", lambda *args: scored.append(len(args[1])) or logits(*args)
    )
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path) or read_bytes(path))
    shell("predict", model, place / "new.csv", "--id", "number,income", "--out", "-")
    assert scored == [700]
    assert [path for path in opened if path.suffix == ".csv"] == [place / "new.csv"]


def test_confidence_and_intersections(
    crossed: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    answer("predict", crossed, place / "new.csv", "--tolerance", 0.7, "--confidence", 0.9, "--out",
           tmp_path / "out.csv")  # fmt: skip
    found = fairdial.load(crossed)
    X = read_rows(found, place / "new.csv").X
    assert X.columns[-2:].tolist() == ["region", "sex"]
    sure = found.predict(X, tolerance=0.7, confidence=0.9)
    assert written(tmp_path / "out.csv")["decision"].tolist() == sure.tolist()


def test_simultaneous_decides_by_the_simultaneous_point(
    model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    found = fairdial.load(model)
    rows = read_rows(found, place / "new.csv")
    given = ("predict", model, place / "new.csv", "--tolerance", 0.3, "--confidence", 0.9)
    thresholds = {}
    for name, flag in (("one", ()), ("any", ("--simultaneous",))):
        result = answer(*given, *flag, "--out", tmp_path / f"{name}.csv")
        assert (result["tolerance"], result["simultaneous"]) == (0.3, bool(flag))
        point = found.frontier_.at(0.3, confidence=0.9, simultaneous=bool(flag))
        limits = dict(zip(point.groups, point.thresholds, strict=True))
        margin = found.logits(rows.X) - rows.group_columns["region"].map(limits).to_numpy()
        assert np.array_equal(written(tmp_path / f"{name}.csv")["margin"], margin)
        thresholds[name] = limits
    assert thresholds["one"] != thresholds["any"]


def test_several_columns_can_stand_beside_the_decisions(
    model: Path, place: Path, shell: Any
) -> None:
    for given in (("--id", "sex", "--id", "number"), ("--id", "sex,number")):
        found = shell("predict", model, place / "new.csv", "--out", "-", *given)
        names = found.stdout.splitlines()[0].split(",")
        assert names == ["sex", "number", "decision", "margin", "logit"]


def test_ids_are_written_as_they_are_in_the_file(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    ids = new.assign(pid=[f"{i:05d}" for i in range(700)], word="NA", half="1.50")
    ids["children"] = ids["children"].astype("Int64").mask(ids.index == 3)  # a feature
    names = ["pid", "word", "half", "children", "region", "owner", "income"]
    ids.to_csv(tmp_path / "ids.csv", index=False)
    ids.to_parquet(tmp_path / "ids.parquet")
    for kind in ("csv", "parquet"):
        given = ("--id", ",".join(names), "--out", "-")
        found = shell("predict", model, tmp_path / f"ids.{kind}", *given).stdout
        texts = pd.read_csv(io.StringIO(found), dtype=str, keep_default_na=False)[names]
        known = pd.read_csv(tmp_path / "ids.csv", dtype=str, keep_default_na=False)[names]
        pd.testing.assert_frame_equal(texts, known)
    given = ("--id", "children", "--out", tmp_path / "out.parquet")
    shell("predict", model, tmp_path / "ids.parquet", *given)
    assert written(tmp_path / "out.parquet")["children"].equals(ids["children"])


def test_groups_that_are_numbers_keep_their_names_for_calibration_by_scores(
    tmp_path: Path, old: pd.DataFrame, shell: Any
) -> None:
    table = old[["income", "decision"]].assign(group=(old["region"] == "north").astype(int))
    table.to_csv(tmp_path / "t.csv", index=False)
    given = ("--label", "decision", "--sensitive", "group", "--method", "logistic", "--out")
    shell("train", tmp_path / "t.csv", *given, tmp_path / "m")
    scored = tmp_path / "scored.parquet"
    shell("predict", tmp_path / "m", tmp_path / "t.csv", "--id", "group", "--out", scored)
    given = ("--scores", "logit", "--group", "group", "--out", tmp_path / "again")
    shell("calibrate", tmp_path / "m", scored, *given)
    assert fairdial.load(tmp_path / "again").frontier_.groups == (0, 1)


def test_stdout_holds_the_table_alone(model: Path, place: Path, shell: Any, refused: Any) -> None:
    given = ("predict", model, place / "new.csv", "--out", "-")
    found = shell(*given, "--id", "number")
    assert pd.read_csv(io.StringIO(found.stdout)).shape == (700, 4)
    assert "700" in found.stderr
    assert shell(*given, "--quiet").stderr == ""
    refused(*given, "--json", option="--json", names=("--out",))


def test_other_columns_and_their_order_make_no_difference(
    model: Path, place: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    new[new.columns[::-1]].drop(columns="decision").assign(more="x").to_csv(
        tmp_path / "other.csv", index=False
    )
    for name, data in (("a", place / "new.csv"), ("b", tmp_path / "other.csv")):
        answer("predict", model, data, "--out", tmp_path / f"{name}.parquet")
    pd.testing.assert_frame_equal(*(written(tmp_path / f"{name}.parquet") for name in "ab"))


def test_a_text_column_stays_text_when_all_its_values_look_like_numbers(
    tmp_path: Path, answer: Any, new: pd.DataFrame
) -> None:
    plans = np.where(new["owner"], "7", "1a")
    table = new[["income", "region", "decision"]].assign(plan=plans)
    table.to_csv(tmp_path / "train.csv", index=False)
    answer("train", tmp_path / "train.csv", "--label", "decision", "--positive", "approve",
           "--sensitive", "region", "--out", tmp_path / "m")  # fmt: skip
    part = table[table["plan"] == "7"]
    part.to_csv(tmp_path / "part.csv", index=False)
    for name in ("train", "part"):
        answer("predict", tmp_path / "m", tmp_path / f"{name}.csv", "--out",
               tmp_path / f"{name}.parquet")  # fmt: skip
    whole, alone = (written(tmp_path / f"{name}.parquet") for name in ("train", "part"))
    assert np.array_equal(whole["margin"][part.index], alone["margin"])


def test_unknown_categories_and_missing_numbers_are_taken(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    table = new.assign(job="pilot", children=np.nan)
    table.to_csv(tmp_path / "strange.csv", index=False)
    result = answer("predict", crossed, tmp_path / "strange.csv", "--out", tmp_path / "out.csv")
    assert result["rows"] == 700
    assert written(tmp_path / "out.csv")["margin"].notna().all()


KIND = pd.CategoricalDtype(["care", "craft", "office"])


@pytest.mark.parametrize("kind", ["encoder", "boosting", "blend", "network", "category"])
def test_rows_with_categories_that_training_did_not_see_are_counted(
    kind: str, tmp_path: Path, old: pd.DataFrame, new: pd.DataFrame, shell: Any
) -> None:
    scorers = {
        "encoder": logistic(),
        "boosting": boosting(["job"], 0),
        "blend": [logistic(), boosting(["job"], 0)],
        "network": Network(epochs=1, members=1),
        "category": HistGradientBoostingClassifier(categorical_features="from_dtype"),
    }
    X = old[["income", "job", "region"]]
    X = X.astype({"job": KIND}) if kind == "category" else X.assign(job=as_text(X["job"]))
    model = FairBayes(scorers[kind], sensitive_column="region", random_state=0)
    model.fit(X, old["decision"]).save(tmp_path / "m")
    strange = new["job"].mask(new.index < 3, "pilot").mask(new.index == 3)
    for jobs, noted in ((new["job"], False), (strange, True)):
        new.assign(job=jobs).to_csv(tmp_path / "new.csv", index=False)
        for name, *options in (
            ("predict", "--out", tmp_path / "o.csv", "--overwrite"),
            ("evaluate",),
        ):
            given = (name, tmp_path / "m", tmp_path / "new.csv", *options, "--tolerance", 0.3)
            lines = [line for line in shell(*given).stderr.splitlines() if "'job'" in line]
            assert [("3 rows" in x, "'pilot'" in x) for x in lines] == [(True, True)] * noted
            assert "category" not in shell(*given, "--quiet").stderr


@pytest.mark.parametrize(("method", "most"), [("logistic", 64), ("boosting", None)])
def test_values_beyond_those_that_a_method_distinguishes_are_noted(
    method: str, most: int | None, tmp_path: Path, old: pd.DataFrame, shell: Any
) -> None:
    many, rows = 273, pd.concat([old] * 5)  # all cities have enough rows for a category
    cities = [f"city {i % many if i < 6500 else i % 40}" for i in range(len(rows))]
    table = rows[["income", "region", "decision"]].assign(city=cities)
    table.to_csv(tmp_path / "t.csv", index=False)
    given = ("--label", "decision", "--sensitive", "region", "--method", method, "--out")
    trained = shell("train", tmp_path / "t.csv", *given, tmp_path / "m").stderr
    predict = ("predict", tmp_path / "m", tmp_path / "t.csv", "--overwrite", "--out")
    found = shell(*predict, tmp_path / "o.csv").stderr
    if most is not None:
        noted = rf"'city' has {many} values; the {most} .* \(\d+\.\d% of rows\)"
        assert re.search(noted, trained), trained
        assert re.search(rf"'city' .* {most} ", found), found
        return
    assert "'city' has" not in trained  # boosting has the share of positive labels of each
    assert "'city'" not in found
    table.assign(city=["new", *cities[1:]]).to_csv(tmp_path / "t.csv", index=False)
    found = shell(*predict, tmp_path / "o.csv").stderr
    assert re.search(r"1 row .* 'city'.* 'new'", found), found


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ({"sep": ";", "encoding": "latin-1", "decimal": ","},
         ("--separator", ";", "--encoding", "latin-1", "--decimal", ",")),
        ({"sep": "\t"}, ("--separator", "tab")),
        ({"encoding": "utf-16"}, ("--encoding", "utf-16")),
    ],
)  # fmt: skip
def test_another_csv_format_is_the_same_table(
    written: dict[str, str],
    given: tuple[str, ...],
    tmp_path: Path,
    old: pd.DataFrame,
    new: pd.DataFrame,
    answer: Any,
    shell: Any,
) -> None:
    for name, table in (("old", old), ("new", new)):
        named = table.drop(columns=["number", "half"]).rename(columns={"job": "tätigkeit"})
        named.to_csv(tmp_path / f"{name}-usual.csv", index=False)
        named.to_csv(tmp_path / f"{name}-other.csv", index=False, **written)
    found = {}
    for kind, form in (("usual", ()), ("other", given)):
        out, new_rows = tmp_path / kind, tmp_path / f"new-{kind}.csv"
        trained = answer("train", tmp_path / f"old-{kind}.csv", "--label", "decision",
                         "--sensitive", "region", "--method", "logistic", "--out", out,
                         *form)  # fmt: skip
        shell("predict", out, new_rows, "--out", tmp_path / f"{kind}-decided.csv", *form)
        shell("calibrate", out, new_rows, "--out", tmp_path / f"{kind}-2", *form)
        found[kind] = (
            trained["frontier"],
            (tmp_path / f"{kind}-decided.csv").read_text(),
            answer("evaluate", out, new_rows, *form)["accuracy"],
            answer("dial", tmp_path / f"{kind}-2")["gap"],
        )
    assert found["usual"] == found["other"]


# ---- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "option", "name"),
    [
        (["--separator", ";;"], "--separator", "';;'"),
        (["--separator", "a"], "--separator", "'a'"),
        (["--separator", ";"], "DATA", "--separator ,"),
        (["--encoding", "latin-99"], "--encoding", "'latin-99'"),
        (["--decimal", ","], "--decimal", "--separator"),
        (["--out", "out.xls"], "--out", "'out.xls'"),
        (["--out", "not/there/out.csv"], "--out", "not/there"),
        (["--id", "nummer"], "--id", "Did you mean 'number'?"),
        (["--id", "decision"], "--id", "'decision'"),
    ],
)
def test_options_that_cannot_be_met(
    given: list[str], option: str, name: str, model: Path, place: Path, refused: Any
) -> None:
    out = () if "--out" in given else ("--out", "-")
    refused("predict", model, place / "new.csv", *out, *given, option=option, names=(name,))


def test_csv_options_are_for_csv(model: Path, place: Path, refused: Any) -> None:
    given = ("--out", "-", "--encoding", "latin-1")
    refused("predict", model, place / "new.parquet", *given, option="--encoding")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda t: t.rename(columns={"income": "incme"}), ["'income'", "'incme'"]),
        (lambda t: t.drop(columns="region"), ["'region'", "'number'"]),
        (lambda t: t.assign(region="North"), ["Did you mean 'north'?"]),
        (lambda t: t.assign(region="east"), ["'east'", "700 rows", "data row 1"]),
        (
            lambda t: t.assign(region=t["region"].where(~t.index.isin([7, 9]), "Nroth")),
            ["'Nroth'", "2 rows", "data row 8", "Did you mean 'north'?"],
        ),
        (lambda t: t.assign(region=None), ["'region'", "700 rows", "data row 1"]),
        (
            lambda t: t.assign(income=t["income"].astype(object).where(t.index != 5, "much")),
            ["'income'", "'much'", "data row 6"],
        ),
        (
            lambda t: t.assign(owner=t["owner"].map({True: "yes", False: "no"})),
            ["'owner'", "'yes'"],
        ),
        (lambda t: t.iloc[:0], []),
    ],
)
def test_rows_that_the_model_cannot_take(
    change: Any, names: list[str], model: Path, tmp_path: Path, new: pd.DataFrame, refused: Any
) -> None:
    change(new).to_csv(tmp_path / "bad.csv", index=False)
    given = ("predict", model, tmp_path / "bad.csv", "--out", tmp_path / "no.csv")
    refused(*given, option="DATA", names=tuple(names))
    assert not (tmp_path / "no.csv").exists()


def test_identifiers_that_spreadsheets_run_draw_a_warning_and_are_copied(
    model: Path, new: pd.DataFrame, tmp_path: Path, shell: Any
) -> None:
    harmless = [f"-{i}" if i % 2 else f"+49 {i}" for i in range(len(new))]
    for first, warned in (
        ("=1+1", True),
        ("@SUM(A1)", True),
        ("-1+cmd|'x'", True),
        ("-7.5", False),
    ):
        data = new.assign(number=[first, *harmless[1:]])
        data.to_csv(tmp_path / "a.csv", index=False)
        found = shell("predict", model, tmp_path / "a.csv", "--id", "number", "--out",
                      tmp_path / "out.csv", "--overwrite")  # fmt: skip
        assert ("formulas" in found.stderr) is warned
        assert str(written(tmp_path / "out.csv")["number"][0]) == first


def test_files_are_replaced_only_with_overwrite(
    model: Path, place: Path, tmp_path: Path, shell: Any, refused: Any
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    given = ("predict", model, place / "new.csv", "--out", out)
    refused(*given, option="--out", names=("--overwrite",))
    assert out.read_text() == "mine"
    shell(*given, "--overwrite")
    assert len(written(out)) == 700
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_stray_pair_of_quotes_never_swallows_rows_in_silence(
    new: pd.DataFrame, tmp_path: Path
) -> None:
    """A quote that is opened in one line and closed in a later one, at any two places."""
    path, rng = tmp_path / "a.csv", np.random.default_rng(0)
    lines = new.drop(columns="number").to_csv(index=False).splitlines()
    for _ in range(40):
        first, last = np.sort(rng.choice(np.arange(1, len(lines)), 2, replace=False)).tolist()
        changed = list(lines)
        for line, at_end in ((first, False), (last, True)):
            values = changed[line].split(",")
            place = int(rng.integers(len(values)))
            values[place] = f'{values[place]}"' if at_end else f'"{values[place]}'
            changed[line] = ",".join(values)
        path.write_text("\n".join(changed) + "\n")
        with pytest.raises(InvalidInputError) as caught:
            read_table(path)
        assert caught.value.argument == "data"


def test_line_breaks_in_a_value_draw_a_warning_and_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('name,street,n\nAnn,"Main St, 5\nBerlin",1\nBob,"Elm St",2\n')
    with pytest.warns(FairdialWarning, match="line 2"):
        rows = read_table(path).rows
    assert rows["street"].tolist() == ["Main St, 5\nBerlin", "Elm St"]


@pytest.mark.parametrize("content", ["a,b\n1,\n,2\n", "a,b\n\n1,2\n  \n3,4\n\n", "a\n1\n\n2\n"])
def test_missing_values_and_blank_lines_draw_no_warning(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert len(read_table(path).rows) == 2


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("a.csv", b"", ["empty"]),
        ("a.csv", b"a,b\n1,2\n3,4,5\n", ["line 3", "3 values"]),
        ("a.csv", b"a,b\n0,1,\n1,2,\n", ["line 2", "3 values", "separator"]),
        ("a.csv", b"a\n0,1\n1,2\n", ["separator"]),
        ("a.csv", b"a,b,c\n1,2,3\n4,5", ["last line", "2 values"]),
        ("a.csv", b"a,b\n1,2\n3\n\n  \n", ["last line", "1 values"]),
        ("a.csv", b'a,b,c\n1,2,3\n4,"5\n6"\n', ["last line", "2 values"]),
        ("a.csv", b'a,b,c\n1,2,3\n4,5"', ["last line", "2 values"]),
        ("a.csv", b"a,b,c\n1,2\n3,4,5\n", ["line 2", "2 values"]),
        ("a.csv", b'a,b,c\n"1\n1",2,3\n4,5\n\n6,7,8\n', ["line 4", "2 values"]),
        ("a.csv", b'a,b,c\n1,"2,3\n4,5,6\n7,8",9\n', ["line 2", "3 lines"]),
        ("a.csv", b'a,b,c\n1,2,"3\r\n4,5,6\r\n7,8,9"\r\n', ["line 2", "3 lines"]),
        ("a.csv.gz", gzip.compress(b"a,b,c\n1,2,3\n4,5", mtime=0), ["last line"]),
        ("a.csv.gz", PACKED[:3000], ["cut off"]),
        ("a.csv.gz", PACKED[:900] + bytes(99), ["damaged"]),
        ("a.csv.gz", b"a,b\n1,2\n", ["gzip"]),
        ("a.csv", b"\xff\xfe\x00", ["UTF-8", "--encoding"]),
        ("a.csv", "name,b\nJürgen,2\n".encode("latin-1"), ["UTF-8", "--encoding"]),
        ("a.xlsx", b"PK", ["'a.xlsx'", "CSV"]),
        ("a.csv", b"a;b;c\n1;2;3\n", ["'a;b;c'", "--separator ';'"]),
        ("a.csv", b"a,b,a\n1,2,3\n", ["'a' twice"]),
        ("a.parquet", b"PAR1 not really", ["a.parquet"]),
        ("a.txt", b"a,b\n1,2\n", ["'a.txt'"]),
    ],
)
@pytest.mark.parametrize("verbatim", [(), ("--id", "c")])
def test_files_that_are_no_tables(
    name: str, content: bytes, names: list[str], verbatim: tuple[str, ...], model: Path,
    tmp_path: Path, refused: Any,
) -> None:  # fmt: skip
    (tmp_path / name).write_bytes(content)
    given = ("predict", model, tmp_path / name, "--out", "-", *verbatim)
    refused(*given, option="DATA", names=tuple(names))


@pytest.mark.parametrize(
    "end",
    ["7,,\n", "7,,", "7,,\r\n\r\n", "7,,NA\n  \n", '7,"x\ny",\n', '7,5" pipe,\n', '7,"a ""b""\n",'],
)
def test_a_last_line_may_end_with_an_empty_value(end: str, tmp_path: Path) -> None:
    for name, opened in (("t.csv", open), ("t.csv.gz", gzip.open)):
        path = tmp_path / name
        with opened(path, "wt", newline="") as file:
            file.write(f"a,b,c\n1,x,2\n2,y,3\n{end}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)  # of line breaks within values
            rows = read_table(path).rows
        assert rows["a"].tolist() == [1, 2, 7]
        assert rows["c"].isna().tolist() == [False, False, True]


def test_a_table_of_one_column_may_end_with_an_empty_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a\nx\n""\n')
    assert read_table(tmp_path / "t.csv").rows["a"].isna().tolist() == [False, True]


def test_a_closed_pipe_is_no_error(model: Path, place: Path) -> None:
    command = f"{sys.executable} -m fairdial predict {model} {place / 'new.csv'} --out - | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "decision,margin,logit\n"
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_a_certificate_is_quoted(model: Path, place: Path, shell: Any, tmp_path: Path) -> None:
    asked = ("predict", model, place / "new.csv", "--tolerance", 0.5)
    point = fairdial.load(model).frontier_.at(0.5, confidence=0.9)
    bound = f"{point.certified_gap:.4f}"
    plain = shell(*asked, "--out", tmp_path / "plain.csv")
    certified = shell(*asked, "--confidence", 0.9, "--out", tmp_path / "certified.csv")
    assert bound not in plain.stderr
    assert bound in certified.stderr
