"""Laws of calibration by Parquet files: the answers of the same rows in memory, and flat memory."""

from __future__ import annotations

import builtins
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import (
    BiasedScoresWarning,
    FairBayes,
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    ScoreSummary,
    SeenRowsWarning,
    SmallGroupError,
    UnknownGroupError,
    calibrate_parquet,
    proba_to_logits,
    summarize_parquet,
    sweep,
)
from fairdial.core.criteria import DEMOGRAPHIC_PARITY
from fairdial.core.histograms import Grid
from fairdial.core.problem import Problem
from fairdial.datasets import make_gaussian
from fairdial.large import files
from fairdial.large.files import BITS
from fairdial.large.frontier import find_frontier
from fairdial.large.parquet import reread, summarize
from fairdial.large.reader import BATCH, ParquetReader

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
TOLERANCES = np.array([0.0, 0.03, 0.1])


def draw(seed, n=400, n_groups=3, dtype=np.float64, ties=False):
    """Logits, group codes and labels; every group has many rows with either label."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % n_groups)
    logits = rng.normal(0, 1.5, n) + 0.4 * codes
    if ties:
        logits = logits.round(1)
    logits[:4] = [np.inf, -np.inf, -0.0, 20.0]
    return logits.astype(dtype), codes, rng.random(n) < 1 / (1 + np.exp(-logits))


def write(folder, table, parts=3, **options):
    """The table in several files, with several row groups each."""
    folder.mkdir(exist_ok=True)
    size = -(-len(table) // parts)
    for part in range(parts):
        piece = table.slice(part * size, size)
        pq.write_table(piece, folder / f"part-{part}.parquet", row_group_size=50, **options)
    return folder


def table_of(logits, groups, y=None):
    columns = {"score": logits, "other": np.arange(len(logits)), "group": groups}
    return pa.table(columns if y is None else columns | {"label": y})


def ask(frontier, tolerances=TOLERANCES):
    """The answers to the tolerances that the path reaches."""
    return frontier.at(tolerances[frontier.points.find(tolerances)[1]])


def same_points(one, two):
    for column in ("tolerance", "gap", "feasible", "thresholds", "selected", "counts", "accuracy"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)
    assert one.groups == two.groups


# ---- the same rows in memory -------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 5])
def test_files_give_the_answers_of_the_rows_in_memory(n_groups, criterion, dtype, ties, tmp_path):
    logits, codes, y = draw(n_groups, 800, n_groups=n_groups, dtype=dtype, ties=ties)
    folder = write(tmp_path / "rows", table_of(logits, codes, y))
    options = {"label": "label", "criterion": criterion}
    exact = calibrate_parquet(folder, tolerances=TOLERANCES, **options)
    same_points(ask(exact), ask(sweep(logits, codes, y, criterion=criterion)))
    summary = ScoreSummary.from_scores(logits, codes, y)
    assert summarize_parquet(folder, label="label") == summary
    same_points(ask(calibrate_parquet(folder, **options)), ask(summary.to_frontier(criterion)))
    assert exact.certificate == "simultaneous"


def test_files_without_labels_have_no_accuracy(tmp_path):
    logits, codes, _ = draw(1)
    folder = write(tmp_path / "rows", table_of(logits, codes))
    exact = calibrate_parquet(folder, tolerances=TOLERANCES)
    same_points(ask(exact), ask(sweep(logits, codes)))
    assert exact.at(0.1).accuracy is None


GROUPS = {
    "text": lambda c: pa.array(np.array(["b", "a", "ü"])[c]),
    "large text": lambda c: pa.array(np.array(["b", "a", "ü"])[c], pa.large_string()),
    "text views": lambda c: pa.array(np.array(["b", "a", "ü"])[c], pa.string_view()),
    "dictionary": lambda c: pa.array(np.array(["b", "a", "ü"])[c]).dictionary_encode(),
    "categories": lambda c: pa.array(
        pd.Categorical(np.array(["b", "a", "ü"])[c], categories=["unused", "ü", "a", "b", "none"])
    ),
    "codes": lambda c: pa.array(c.astype(np.int8)),
    "whole numbers": lambda c: pa.array(np.array([7, 300, -5])[c]),
    "unsigned": lambda c: pa.array(np.array([7, 300, 2**63])[c].astype(np.uint64)),
    "booleans": lambda c: pa.array(c > 0),
    "numbers": lambda c: pa.array(np.array([0.5, 2.0, -1.0])[c]),
    "dictionary of numbers": lambda c: pa.array(np.array([7, 300, -5])[c]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_groups_of_any_type_have_the_names_that_sweep_gives_them(kind, tmp_path):
    logits, codes, y = draw(2)
    groups = GROUPS[kind](codes)
    folder = write(tmp_path / "rows", table_of(logits, groups, y))
    names = np.array(groups.to_pylist(), dtype=object)
    if kind in ("codes", "booleans", "whole numbers", "unsigned", "numbers"):
        names = groups.to_numpy(zero_copy_only=False)
    whole = sweep(logits, names, y)
    found = calibrate_parquet(folder, label="label", tolerances=TOLERANCES)
    assert found.groups == whole.groups
    assert [type(name) for name in found.groups] == [type(name) for name in whole.groups]
    same_points(ask(found), ask(whole))


def test_dictionaries_may_differ_from_file_to_file(tmp_path):
    logits, codes, y = draw(3)
    names = np.array(["a", "b", "c"])
    for part, order in enumerate((["c", "a", "b"], ["b", "x", "c", "a"], ["a", "b", "c"])):
        rows = slice(part * 150, (part + 1) * 150)
        groups = pa.array(pd.Categorical(names[codes[rows]], categories=order))
        table = pa.table({"score": logits[rows], "group": groups, "label": y[rows]})
        pq.write_table(table, tmp_path / f"{part}.parquet")
    found = calibrate_parquet(tmp_path, label="label", tolerances=TOLERANCES)
    same_points(ask(found), ask(sweep(logits, names[codes], y)))


LABELS = {
    "booleans": (lambda y: pa.array(y), None),
    "whole numbers": (lambda y: pa.array(y.astype(np.int64)), None),
    "unsigned": (lambda y: pa.array(y.astype(np.uint64)), None),
    "numbers": (lambda y: pa.array(y.astype(np.float64)), None),
    "the greater word": (lambda y: pa.array(np.where(y, "yes", "no")), None),
    "a word": (lambda y: pa.array(np.where(y, "approve", "deny")), "approve"),
    "categories": (lambda y: pa.array(pd.Categorical(np.where(y, "approve", "deny"))), "approve"),
    "other numbers": (lambda y: pa.array(np.where(y, 2, 1)), None),
    "the lesser number": (lambda y: pa.array(np.where(y, -1, 1)), -1),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type_are_two_values_of_which_one_is_positive(kind, tmp_path):
    logits, codes, y = draw(4)
    make, pos_label = LABELS[kind]
    folder = write(tmp_path / "rows", table_of(logits, codes, make(y)))
    options = {"criterion": "equal_opportunity", "tolerances": TOLERANCES}
    found = calibrate_parquet(folder, label="label", pos_label=pos_label, **options)
    same_points(ask(found), ask(sweep(logits, codes, y, criterion="equal_opportunity")))


@pytest.mark.parametrize(
    ("labels", "pos_label", "argument"),
    [
        (["a", "b", "c"], None, "label"),
        ([0, 1, 2], 1, "label"),
        (["a", "b", "a"], "c", "pos_label"),
        (["a", "a", "a"], None, "pos_label"),
        ([1, 1, 1], "1", "pos_label"),
        (["1", "1", "1"], 1, "pos_label"),
        ([True, True, True], "True", "pos_label"),
        ([[1], [0], [1]], None, "label"),
    ],
)
def test_labels_that_are_not_two_are_refused(labels, pos_label, argument, tmp_path):
    table = table_of([1.0, 2.0, 3.0], ["x", "y", "z"], labels)
    write(tmp_path / "rows", table)
    with pytest.raises(InvalidInputError) as refused:
        summarize_parquet(tmp_path / "rows", label="label", pos_label=pos_label)
    assert refused.value.argument == argument


@pytest.mark.parametrize("pos_label", [1, 1.0, True, np.int64(1)])
def test_a_positive_label_may_be_the_only_one(pos_label, tmp_path):
    write(tmp_path / "rows", table_of([1.0, 2.0], ["x", "y"], [1, 1]), parts=1)
    found = summarize_parquet(tmp_path / "rows", label="label", pos_label=pos_label)
    assert found == ScoreSummary.from_scores([1.0, 2.0], ["x", "y"], [1, 1])


def test_groups_are_single_values_of_one_type(tmp_path):
    pq.write_table(table_of([1.0, 2.0], [[1], [2]]), tmp_path / "0.parquet")
    with pytest.raises(InvalidInputError, match=r"`group`.*list<"):
        summarize_parquet(tmp_path)
    pq.write_table(table_of([1.0, 2.0], [True, False]), tmp_path / "0.parquet")
    pq.write_table(table_of([1.0, 2.0], [1, 2]), tmp_path / "1.parquet")
    with pytest.raises(InvalidInputError, match=r"`group`.*booleans and numbers.*1\.parquet"):
        summarize_parquet(tmp_path)


def test_a_part_without_positive_rows_adds_up_with_the_others(tmp_path):
    table = table_of([1.0, 2.0, 3.0, 4.0], ["x", "y", "x", "y"], ["no", "no", "yes", "no"])
    folder = write(tmp_path / "rows", table, parts=2)
    parts = [
        summarize_parquet(file, label="label", pos_label="yes") for file in sorted(folder.iterdir())
    ]
    whole = ScoreSummary.from_scores([1.0, 2.0, 3.0, 4.0], ["x", "y", "x", "y"], [0, 0, 1, 0])
    assert sum(parts) == whole
    assert summarize_parquet(folder, label="label") == whole


def test_files_of_both_precisions_are_read_in_double_precision(tmp_path):
    logits, codes, y = draw(5)
    narrow = logits[:200].astype(np.float32)
    pq.write_table(table_of(narrow, codes[:200], y[:200]), tmp_path / "0.parquet")
    pq.write_table(table_of(logits[200:], codes[200:], y[200:]), tmp_path / "1.parquet")
    together = np.concatenate((narrow, logits[200:]))
    found = calibrate_parquet(tmp_path, label="label", tolerances=TOLERANCES)
    same_points(ask(found), ask(sweep(together, codes, y)))
    assert summarize_parquet(tmp_path).dtype == np.float64


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.float16(), pa.decimal128(10, 3)], ids=["whole", "half", "decimal"]
)
def test_scores_of_other_types_are_read_as_sweep_reads_them(kind, tmp_path):
    _, codes, y = draw(6)
    logits = np.random.default_rng(6).integers(-4, 4, len(codes)) + 0.0
    scores = pa.array(logits).cast(kind)
    folder = write(tmp_path / "rows", table_of(scores, codes, y))
    as_numpy = logits.astype(np.float16) if kind == pa.float16() else logits
    assert summarize_parquet(folder, label="label") == ScoreSummary.from_scores(as_numpy, codes, y)


def test_probabilities_become_log_odds(tmp_path):
    _, codes, y = draw(7)
    p = np.random.default_rng(7).random(len(codes))
    p[:2] = 0.0, 1.0
    folder = write(tmp_path / "rows", table_of(p, codes, y))
    found = calibrate_parquet(folder, label="label", probabilities=True, tolerances=TOLERANCES)
    same_points(ask(found), ask(sweep(proba_to_logits(p), codes, y)))
    with pytest.warns(FairdialWarning, match="`probabilities=True`"):
        calibrate_parquet(folder)
    write(tmp_path / "rows", table_of(p * 3, codes, y))
    with pytest.raises(InvalidInputError, match="`score`"):
        calibrate_parquet(folder, probabilities=True)


def test_folder_names_are_columns(tmp_path):
    logits, codes, y = draw(8)
    regions = np.array(["7", "south & west", "07"])
    for a, region in enumerate(regions):
        for label in (0, 1):
            rows = (codes == a) & (y == label)
            name = region.replace(" & ", "%20%26%20")
            folder = tmp_path / f"region={name}" / f"label={label}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"score": logits[rows]}), folder / "rows.parquet")
    found = calibrate_parquet(tmp_path, group="region", label="label", tolerances=TOLERANCES)
    same_points(ask(found), ask(sweep(logits, regions[codes], y)))
    with pytest.raises(InvalidInputError, match=r"`group`.*'region'"):
        calibrate_parquet(tmp_path)
    with pytest.raises(InvalidInputError, match=r"`score`.*text"):
        calibrate_parquet(tmp_path, score="region", group="label")
    shutil.move(tmp_path / "region=07", tmp_path / "region=__HIVE_DEFAULT_PARTITION__")
    missing = int((codes == 2).sum())
    with pytest.raises(InvalidInputError, match=f"`group`.*{missing} in column 'region'"):
        calibrate_parquet(tmp_path, group="region")


def test_hidden_files_are_skipped(tmp_path):
    logits, codes, y = draw(9)
    folder = write(tmp_path / "rows", table_of(logits, codes, y))
    (folder / "_temporary").mkdir()
    for name in (".part-7.parquet", "_part-7.parquet", "_temporary/part-7.parquet"):
        shutil.copy(folder / "part-0.parquet", folder / name)
    assert summarize_parquet(folder, label="label") == ScoreSummary.from_scores(logits, codes, y)


def test_a_column_may_be_group_and_label_at_once(tmp_path):
    logits, codes, _ = draw(9, n_groups=2)
    folder = write(tmp_path / "rows", table_of(logits, codes))
    found = summarize_parquet(folder, label="group")
    assert found == ScoreSummary.from_scores(logits, codes, codes)


def test_files_without_rows_change_nothing(tmp_path):
    logits, codes, y = draw(10)
    table = table_of(logits, codes, y)
    folder = write(tmp_path / "rows", table)
    pq.write_table(table.slice(0, 0), folder / "a-first.parquet")
    whole = ScoreSummary.from_scores(logits, codes, y)
    assert summarize_parquet(folder, label="label") == whole
    assert summarize_parquet(folder / "a-first.parquet", label="label") + whole == whole
    with pytest.raises(InvalidInputError, match="`group`"):
        calibrate_parquet(folder / "a-first.parquet")


def test_files_longer_than_a_batch_are_read_to_the_end(tmp_path):
    rng = np.random.default_rng(0)
    n = BATCH + 50_001
    logits, codes = rng.normal(size=n).astype(np.float32), rng.integers(0, 2, n)
    pq.write_table(table_of(logits, codes), tmp_path / "rows.parquet")
    assert summarize_parquet(tmp_path) == ScoreSummary.from_scores(logits, codes)


def test_groups_met_late_and_many_are_kept_apart(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    codes = np.sort(rng.integers(0, 300, 4000))
    logits = rng.normal(size=4000)
    names = np.array([f"g{code:03}" for code in codes])
    folder = write(tmp_path / "rows", table_of(logits, names), parts=4)
    found = summarize_parquet(folder, bits=8)
    assert found == ScoreSummary.from_scores(logits, names, bits=8)
    monkeypatch.setattr(files, "MAX_BINS", 300 << 8)
    assert summarize_parquet(folder, bits=8) == found
    with pytest.raises(InvalidInputError, match="`bits`"):
        summarize_parquet(folder, group="other", bits=8)


# ---- memory ------------------------------------------------------------------------------------


PEAK = """
import sys
from pathlib import Path
from fairdial import calibrate_parquet
from fairdial.large import reader

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

reader.BATCH = 1 << 14
for path in sys.argv[1:]:
    calibrate_parquet(path, label="label", tolerances=[0.01])
    print(peak())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells a process's memory")
def test_memory_grows_neither_with_the_rows_nor_with_the_row_group(tmp_path):
    few, many = 100_000, 2_000_000
    for n in (few, many):
        rng = np.random.default_rng(0)
        table = table_of(rng.normal(size=n), rng.integers(0, 2, n), rng.random(n) < 0.5)
        pq.write_table(table, tmp_path / f"{n}.parquet", row_group_size=n)
    files = [str(tmp_path / f"{n}.parquet") for n in (few, many)]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *files], capture_output=True, text=True, check=True
    )
    before, after = (1024 * int(line) for line in done.stdout.split())  # of the whole process
    assert after - before < 8 * many / 2  # half of what the scores alone take


def test_only_the_columns_named_are_read(tmp_path):
    logits, codes, y = draw(11, n=5000)
    noise = np.random.default_rng(0).bytes(8 * 5000)
    table = table_of(logits, codes, y).append_column("noise", pa.array(np.frombuffer(noise)))
    pq.write_table(table, tmp_path / "rows.parquet", compression="none", use_dictionary=False)
    data = (tmp_path / "rows.parquet").read_bytes()
    start = data.index(noise[:64]) - 40  # the head of the page, too
    (tmp_path / "rows.parquet").write_bytes(data[:start] + bytes(20_000) + data[start + 20_000 :])
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(tmp_path / "rows.parquet")
    found = summarize_parquet(tmp_path, label="label")
    assert found == ScoreSummary.from_scores(logits, codes, y)


# ---- bad files ---------------------------------------------------------------------------------


def test_a_missing_column_is_refused_with_the_known_ones(tmp_path):
    folder = write(tmp_path / "rows", table_of(*draw(1)))
    there = r"\['score', 'other', 'group', 'label'\] of part-0.parquet"
    for argument in ("score", "group", "label"):
        with pytest.raises(InvalidInputError, match=f"`{argument}`.*{there}.*'nothing'"):
            calibrate_parquet(folder, **{argument: "nothing"})


def test_a_column_missing_in_a_later_file_is_named_before_anything_is_read(tmp_path):
    folder = write(tmp_path / "rows", table_of(*draw(1)))
    pq.write_table(pa.table({"score": [1.0]}), folder / "z.parquet")
    with pytest.raises(InvalidInputError, match=r"`group`.*\['score'\] of z.parquet"):
        calibrate_parquet(folder)


def test_scores_must_be_numbers(tmp_path):
    folder = write(tmp_path / "rows", table_of(np.array(["x", "y"]), [0, 1]))
    with pytest.raises(InvalidInputError, match=r"`score`.*string"):
        calibrate_parquet(folder)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("score", "null"),
        ("score", "nan"),
        ("group", "null"),
        ("group", "nan"),
        ("label", "null"),
    ],
)
def test_missing_values_are_counted_over_all_files_and_refused(column, kind, tmp_path):
    logits, codes, y = draw(12)
    columns = {
        "score": pa.array(logits),
        "group": pa.array(np.array(["a", "b", "c"])[codes]),
        "label": pa.array(y),
    }
    hidden = np.zeros(len(y), bool)
    hidden[[5, 150, 151, 390]] = True
    if kind == "nan":
        numbers = logits if column == "score" else codes.astype(float)
        columns[column] = pa.array(np.where(hidden, np.nan, numbers))
    else:
        values = columns[column].to_pylist()
        columns[column] = pa.array([None if h else v for h, v in zip(hidden, values, strict=True)])
    folder = write(tmp_path / "rows", pa.table(columns))
    with pytest.raises(InvalidInputError, match=f"`{column}`.*400 rows: 4 in column '{column}'"):
        calibrate_parquet(folder, label="label")
    if column == "score":
        with pytest.raises(InvalidInputError, match=f"`{column}`.* 4 in column"):
            calibrate_parquet(folder, label="label", probabilities=True)


def test_a_path_without_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InvalidInputError, match="`path`"):
        calibrate_parquet(tmp_path)
    with pytest.raises(InvalidInputError, match="`path`"):
        calibrate_parquet(tmp_path / "nowhere")


def test_an_invalid_or_damaged_file_is_refused(tmp_path):
    (tmp_path / "rows.parquet").write_text("score,group\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"`path`.*rows\.parquet"):
        calibrate_parquet(tmp_path)
    logits, codes, y = draw(1, n=5000)
    pq.write_table(table_of(logits, codes, y), tmp_path / "rows.parquet", use_dictionary=False)
    data = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(data[:4] + bytes(3000) + data[3004:])
    with pytest.raises(InvalidInputError, match=r"`path`.*rows\.parquet"):
        calibrate_parquet(tmp_path)
    (tmp_path / "rows.parquet").write_bytes(data[:-200])
    with pytest.raises(InvalidInputError, match=r"`path`.*rows\.parquet"):
        calibrate_parquet(tmp_path)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"criterion": "kindness"}, "criterion"),
        ({"criterion": "equal_opportunity"}, "label"),
        ({"tolerances": [2.0]}, "tolerances"),
        ({"min_count": 0}, "min_count"),
        ({"bits": 30}, "bits"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(options, argument, tmp_path):
    with pytest.raises(InvalidInputError) as refused:
        calibrate_parquet(tmp_path / "nowhere", **options)
    assert refused.value.argument == argument


def test_small_groups_are_named(tmp_path):
    folder = write(tmp_path / "rows", table_of(*draw(1, n=60)))
    with pytest.raises(SmallGroupError, match="`group`") as refused:
        calibrate_parquet(folder)
    assert refused.value.groups == (0, 1, 2)
    assert calibrate_parquet(folder, min_count=20).groups == (0, 1, 2)


@pytest.mark.parametrize("change", ["a group", "scores"])
def test_files_that_change_between_the_passes_are_refused(change, tmp_path):
    logits, codes, y = draw(1)
    folder = write(tmp_path / "rows", table_of(logits, codes, y))
    reader = ParquetReader(folder, "score", "group", "label")
    summary, cells = summarize(reader, Grid(BITS))
    scores = logits + 1 if change == "scores" else logits
    write(folder, table_of(scores, codes + (change == "a group"), y))
    with pytest.raises(InvalidInputError, match="`path`"):
        find_frontier(
            summary,
            Problem(DEMOGRAPHIC_PARITY),
            tolerances=np.array([0.0, 0.1]),
            read=lambda _: reread(reader, cells),
            min_count=1,
            source="path",
        )


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[large\]' -c constraints"):
        calibrate_parquet(tmp_path)


# ---- estimators --------------------------------------------------------------------------------


def fitted(rows, y=None, **options):
    """A model of the rows; that one for all groups is biased in each is no news here."""
    model = FairBayes(LogisticRegression(), random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiasedScoresWarning)
        return model.fit(rows.X, rows.y if y is None else y, sensitive_features=rows.groups)


def scored(model, rows, folder, labels=None):
    """What the model gives for the rows, written to a file."""
    logits = model.logits(rows.X, sensitive_features=rows.groups)
    table = {"score": logits, "group": rows.groups, "label": rows.y if labels is None else labels}
    pq.write_table(pa.table(table), folder / "rows.parquet")


@pytest.fixture(scope="module")
def rows():
    sample = make_gaussian(6000, random_state=0)
    return sample.split(random_state=0)


@pytest.mark.parametrize("per_group", [True, False])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_model_is_calibrated_as_by_rows_in_memory(rows, criterion, per_group, tmp_path):
    train, new = rows
    words = [np.where(part.y, "approve", "deny") for part in rows]
    options = {"criterion": criterion, "per_group": per_group, "pos_label": "approve"}
    model = fitted(train, words[0], **options)
    scored(model, new, tmp_path, words[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiasedScoresWarning)
        model.calibrate(new.X, words[1], sensitive_features=new.groups)
        expected = ask(model.frontier_)
        choices = [
            model.predict(new.X, sensitive_features=new.groups, tolerance=t) for t in (0.03, 0.1)
        ]
        assert model.calibrate_parquet(tmp_path, label="label", tolerances=TOLERANCES) is model
    same_points(ask(model.frontier_), expected)
    for tolerance, chosen in zip((0.03, 0.1), choices, strict=True):
        again = model.predict(new.X, sensitive_features=new.groups, tolerance=tolerance)
        np.testing.assert_array_equal(again, chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiasedScoresWarning)
        model.calibrate_parquet(tmp_path, label="label")
    assert model.frontier_.at(0.1).gap <= 0.1


def test_a_model_is_calibrated_without_labels(rows, tmp_path):
    train, new = rows
    model = fitted(train)
    scored(model, new, tmp_path)
    model.calibrate_parquet(tmp_path)
    assert model.frontier_.at(0.1).accuracy is None
    model.set_params(criterion="equal_opportunity")
    with pytest.raises(InvalidInputError, match="`label`"):
        model.calibrate_parquet(tmp_path)
    assert model.frontier_.counts.sum() == len(new.y)


def test_a_label_that_is_not_a_class_of_the_model_is_refused_and_nothing_changes(rows, tmp_path):
    train, new = rows
    model = fitted(train)
    before = model.frontier_
    scored(model, new, tmp_path, np.where(new.y, "yes", "no"))
    with pytest.raises(InvalidInputError, match=r"`label`.*'no'"):
        model.calibrate_parquet(tmp_path, label="label")
    assert model.frontier_ is before


def test_groups_must_be_those_of_training(rows, tmp_path):
    train, new = rows
    model = fitted(train, per_group=True)
    scores = model.logits(new.X, sensitive_features=new.groups)
    table = {"score": scores, "group": np.where(new.groups == "group 0", "stranger", new.groups)}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    with pytest.raises(UnknownGroupError, match="'stranger'"):
        model.calibrate_parquet(tmp_path)
    table["group"] = np.full(len(scores), "group 1")
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    with pytest.raises(InvalidInputError, match=r"`group`.*'group 0'"):
        model.calibrate_parquet(tmp_path)


def test_a_fitted_estimator_is_calibrated_by_files_alone(rows, tmp_path):
    train, new = rows
    estimator = LogisticRegression().fit(train.X, train.y)
    logits = proba_to_logits(estimator.predict_proba(new.X)[:, 1])
    pq.write_table(pa.table({"score": logits, "group": new.groups}), tmp_path / "rows.parquet")
    model = FairBayes(estimator, prefit=True).calibrate_parquet(tmp_path, tolerances=[0.05])
    decided = model.predict(new.X, sensitive_features=new.groups, tolerance=0.05)
    thresholds = model.thresholds(0.05)
    by_hand = logits > np.array([thresholds[group] for group in new.groups])
    np.testing.assert_array_equal(decided, by_hand)
    assert model.feature_names_in_.tolist() == list(new.X.columns)
    rates = [decided[new.groups == group].mean() for group in thresholds]
    assert max(rates) - min(rates) == pytest.approx(model.frontier_.at(0.05).gap, abs=1e-15)
    assert model.frontier_.at(0.05).gap <= 0.05


def test_recalibrated_scores_stay_recalibrated(rows, tmp_path):
    train, new = rows
    model = fitted(train, recalibrate="group")
    lines = model.platt_.slope.tolist()
    scored(model, new, tmp_path)
    model.calibrate_parquet(tmp_path, label="label", tolerances=[0.05])
    assert model.platt_.slope.tolist() == lines
    decided = model.predict(new.X, sensitive_features=new.groups, tolerance=0.05)
    rates = [decided[new.groups == group].mean() for group in model.frontier_.groups]
    assert max(rates) - min(rates) == pytest.approx(model.frontier_.at(0.05).gap, abs=1e-15)
    prefit = FairBayes(model.estimator_, prefit=True, recalibrate="group")
    with pytest.raises(InvalidInputError, match="`recalibrate`"):
        prefit.calibrate_parquet(tmp_path, label="label")


def test_biased_scores_are_reported_as_by_rows_in_memory(rows, tmp_path):
    train, new = rows
    model = fitted(train, per_group=True)
    logits = model.logits(new.X, sensitive_features=new.groups)
    for shift, biased in ((0.0, False), (0.7, True)):
        table = {"score": logits + shift, "group": new.groups, "label": new.y}
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            model.calibrate_parquet(tmp_path, label="label")
        assert [w.category for w in given] == [BiasedScoresWarning] * biased


def test_scores_that_know_the_labels_of_the_files_are_noticed(tmp_path: Path) -> None:
    train, new = make_gaussian(4000, random_state=0).split(random_state=0)
    model = fitted(train, per_group=True)
    table = {"score": np.where(new.y, 2.0, -2.0), "group": new.groups, "label": new.y}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    with pytest.warns(SeenRowsWarning, match="rows"):
        model.calibrate_parquet(tmp_path, label="label")
