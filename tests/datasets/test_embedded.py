"""The embedded tables: what they hold, and how the protocol divides them."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import OneHotEncoder

from fairdial.datasets import load_adult, load_compas
from fairdial.errors import InvalidInputError

DATA = files("fairdial.datasets") / "data"
LOADERS = [load_adult, load_compas]
ADULT_GROUPS = {"Female": 16192, "Male": 32650}
COMPAS_GROUPS = {"Caucasian": 2103, "Not Caucasian": 4069}
PART_SIZES = {  # train, validation, calibration, test
    (load_adult, "Female"): (10491, 1458, 2623, 1620),
    (load_adult, "Male"): (21156, 2939, 5290, 3265),
    (load_compas, "Not Caucasian"): (2636, 367, 659, 407),
    (load_compas, "Caucasian"): (1361, 190, 341, 211),
}


def counts(data) -> dict[str, int]:
    return dict(zip(*np.unique(data.groups, return_counts=True), strict=True))


@pytest.fixture(scope="module")
def make_data():
    path = Path(__file__).resolve().parents[2] / "scripts" / "make_data.py"
    spec = importlib.util.spec_from_file_location("make_data", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestFiles:
    def test_the_embedded_files_are_those_that_the_script_wrote(self):
        lines = (DATA / "SHA256SUMS").read_text().splitlines()
        listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
        assert set(listed) == {"adult.csv.gz", "compas.csv.gz"}
        for name, digest in listed.items():
            assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest

    def test_no_column_identifies_a_person(self, make_data):
        header = gzip.decompress((DATA / "compas.csv.gz").read_bytes()).decode().splitlines()[0]
        assert tuple(header.split(",")) == make_data.COMPAS_COLUMNS
        assert not {"name", "first", "last", "dob", "id"} & set(make_data.COMPAS_COLUMNS)
        assert not [name for name in make_data.COMPAS_COLUMNS if "date" in name or "case" in name]

    def test_adult_is_stripped_and_nothing_is_dropped(self, make_data):
        row = "39, ?, 1, HS-grad, 9, a, b, c, Black, Female, 0, 0, 40, ?, <=50K"
        rows = list(make_data.adult_rows(f"{row}\n\n", f"|a remark\n{row}.\n\n"))
        assert rows[0] == rows[1] == row.split(", ")
        assert len(rows) == 2

    def test_a_row_of_the_wrong_width_stops_the_script(self, make_data):
        with pytest.raises(ValueError, match="must have 15 fields"):
            list(make_data.adult_rows("1, 2, 3\n", ""))

    @pytest.mark.parametrize(
        "changed",
        [
            {"days_b_screening_arrest": "31"},
            {"days_b_screening_arrest": "-31"},
            {"days_b_screening_arrest": ""},
            {"is_recid": "-1"},
            {"c_charge_degree": "O"},
            {"score_text": "N/A"},
        ],
    )
    def test_the_filter_of_compas_leaves_a_row_out(self, make_data, changed):
        kept = dict.fromkeys(make_data.COMPAS_COLUMNS, "1") | {
            "name": "somebody",
            "days_b_screening_arrest": "-30",
            "is_recid": "0",
            "score_text": "Low",
        }
        lines = [",".join(row.values()) for row in (kept, kept | changed)]
        raw = "\n".join([",".join(kept), *lines])
        assert list(make_data.compas_rows(raw)) == [["1"] * len(make_data.COMPAS_COLUMNS)]

    def test_the_same_table_gives_the_same_bytes(self, make_data):
        first, second = (make_data.compressed(["a", "b"], [["1", "x, y"]]) for _ in range(2))
        assert first == second
        assert gzip.decompress(first) == b'a,b\n1,"x, y"\n'


class TestAdult:
    def test_all_rows_are_there(self):
        data = load_adult()
        assert len(data) == 48842
        assert counts(data) == ADULT_GROUPS
        assert data.y.sum() == 11687

    def test_the_label_and_the_sensitive_columns_are_not_features(self):
        assert {"income", "sex"}.isdisjoint(load_adult().X.columns)
        assert "race" in load_adult().X
        assert {"race", "sex"}.isdisjoint(load_adult(["race", "sex"]).X.columns)
        assert "sex" in load_adult("race").X

    def test_the_weight_and_the_education_stay(self):
        assert {"fnlwgt", "education", "education_num"} <= set(load_adult().X.columns)
        assert load_adult().X.shape[1] == 13

    def test_an_unknown_value_is_a_category_of_its_own(self):
        X = load_adult().X
        with_unknown = {name for name in X if (X[name] == "?").any()}
        assert with_unknown == {"workclass", "occupation", "native_country"}
        assert not X.isna().any().any()

    def test_groups_can_be_races_or_intersections(self):
        assert len(counts(load_adult("race"))) == 5
        both = counts(load_adult(["race", "sex"]))
        assert len(both) == 10
        assert both["Black & Female"] == 2308


class TestCompas:
    def test_the_rows_of_the_study_are_there(self):
        data = load_compas()
        assert len(data) == 6172
        assert counts(data) == COMPAS_GROUPS
        assert data.y.sum() == 2809

    def test_the_label_and_the_sensitive_columns_are_not_features(self):
        assert {"two_year_recid", "race"}.isdisjoint(load_compas().X.columns)
        assert "sex" in load_compas().X
        assert {"race", "sex"}.isdisjoint(load_compas(["race", "sex"]).X.columns)

    def test_groups_can_be_races_or_intersections(self):
        races = counts(load_compas("race"))
        assert len(races) == 6
        assert races["African-American"] == 3175
        assert counts(load_compas(["race", "sex"]))["Hispanic & Female"] == 82


@pytest.mark.parametrize("load", LOADERS)
class TestBoth:
    @pytest.mark.parametrize("sensitive", ["age", "", [], ["sex", "sex"], ["sex", "age"]])
    def test_unknown_groups_are_refused(self, load, sensitive):
        with pytest.raises(InvalidInputError, match="`sensitive`"):
            load(sensitive)

    def test_columns_are_integers_or_categories(self, load):
        kinds = load().X.dtypes
        assert all(isinstance(kind, pd.CategoricalDtype) or kind == np.int64 for kind in kinds)

    def test_every_part_knows_every_category(self, load):
        data = load()
        small = data.subset([0])
        assert small.X.dtypes.equals(data.X.dtypes)

    def test_scikit_learn_takes_the_features_as_they_are(self, load):
        data = load().subset(np.arange(0, 2000, 2))
        HistGradientBoostingClassifier(max_iter=2).fit(data.X, data.y)
        encoded = OneHotEncoder().fit_transform(data.X.select_dtypes("category"))
        assert encoded.shape[0] == len(data)

    def test_it_describes_where_it_comes_from(self, load):
        text = load().describe()
        assert all(
            f"\n{head}: " in text for head in ("Label 1", "Source", "License", "Preparation")
        )

    @pytest.mark.parametrize("seed", [0, 5, 10, 15, 20])
    def test_the_protocol_gives_the_sizes_of_the_study(self, load, seed):
        parts = load().paper_split(seed)
        for name in counts(parts.train):
            sizes = tuple(int(np.sum(part.groups == name)) for part in parts)
            assert sizes == PART_SIZES[load, name]

    def test_the_protocol_keeps_the_share_of_labels_within_one_row(self, load):
        data = load()
        for part in data.paper_split(0):
            for name, n in counts(part).items():
                expected = data.y[data.groups == name].mean()
                assert abs(part.y[part.groups == name].mean() - expected) < 1 / n

    def test_the_protocol_uses_every_row_once(self, load):
        data = load()
        rows = np.concatenate([part.X.index for part in data.paper_split(0)])
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(data)))

    def test_a_seed_decides_the_protocol(self, load):
        data = load()
        first, again, other = (data.paper_split(seed).test.X.index for seed in (0, 0, 5))
        assert first.equals(again)
        assert not first.equals(other)
