"""The Gaussian law: its closed forms against simulation, brute force and known values."""

from __future__ import annotations

import numpy as np
import pytest

from fairdial.core.criteria import CRITERIA, criterion
from fairdial.datasets import GaussianLaw, make_gaussian
from fairdial.errors import InvalidInputError, UnknownGroupError

LAW = GaussianLaw()
SWAPPED = GaussianLaw((0.4, 0.6), (0.6, 0.3), (1.5, 1.2))
THREE = GaussianLaw((0.5, 0.3, 0.2), (0.2, 0.5, 0.7), (1.0, 1.5, 2.0))
NAMES = [known.name for known in CRITERIA if known.is_simple]

# criterion, part of the largest disparity: t, two thresholds, accuracy
KNOWN = {
    ("demographic_parity", 0.0): (0.21872865, -0.764241, 1.227672, 0.72435143),
    ("demographic_parity", 0.5): (0.12129640, -0.409969, 0.626170, 0.76128341),
    ("equal_opportunity", 0.0): (0.14667674, -0.596014, 0.944570, 0.74460000),
    ("equal_opportunity", 0.5): (0.07989975, -0.367339, 0.404839, 0.76698958),
    ("predictive_equality", 0.0): (0.15329203, -0.454100, 0.671962, 0.75872720),
    ("predictive_equality", 0.5): (0.07077004, -0.184524, 0.366248, 0.77104065),
}
LARGEST = {
    "demographic_parity": 0.42965381,
    "equal_opportunity": 0.38845046,
    "predictive_equality": 0.21996153,
}


def free(law: GaussianLaw, name: str) -> float:
    return law.disparity(name, 0.0)


class TestKnownValues:
    def test_the_accuracy_without_constraint(self):
        assert LAW.accuracy([0.0, 0.0]) == pytest.approx(0.77475077, abs=5e-9)

    @pytest.mark.parametrize("name", NAMES)
    def test_the_largest_disparity(self, name):
        assert free(LAW, name) == pytest.approx(LARGEST[name], abs=5e-9)

    @pytest.mark.parametrize(("name", "part"), KNOWN)
    def test_the_best_rule(self, name, part):
        t, first, second, accuracy = KNOWN[name, part]
        point = LAW.at(name, part * free(LAW, name))
        assert point.t == pytest.approx(t, abs=5e-9)
        assert point.thresholds == pytest.approx([first, second], abs=5e-7)
        assert point.accuracy == pytest.approx(accuracy, abs=5e-9)


@pytest.mark.parametrize("name", NAMES)
class TestFrontier:
    def test_disparity_falls_strictly_along_the_path(self, name):
        ts = np.linspace(-0.1, 0.1, 41)
        assert np.all(np.diff([LAW.disparity(name, t) for t in ts]) < 0)

    @pytest.mark.parametrize("law", [LAW, SWAPPED])
    @pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
    def test_the_disparity_is_exactly_the_tolerance(self, name, law, part):
        tolerance = part * abs(free(law, name))
        point = law.at(name, tolerance)
        assert point.disparity == pytest.approx(np.copysign(tolerance, free(law, name)), abs=1e-12)

    def test_a_wide_tolerance_changes_nothing(self, name):
        point = LAW.at(name, 1.0)
        assert point.t == 0.0
        assert np.all(point.thresholds == 0.0)

    def test_swapping_the_groups_changes_the_sign_only(self, name):
        here, there = LAW.at(name, 0.1), SWAPPED.at(name, 0.1)
        assert there.t == pytest.approx(-here.t, abs=1e-12)
        assert there.disparity == pytest.approx(-here.disparity, abs=1e-12)
        assert there.thresholds == pytest.approx(here.thresholds[::-1], abs=1e-10)
        assert there.accuracy == pytest.approx(here.accuracy, abs=1e-12)

    @pytest.mark.parametrize("tolerance", [0.01, 0.1])
    def test_no_pair_of_thresholds_does_better(self, name, tolerance):
        grid = np.linspace(-4.0, 4.0, 801)
        pairs = np.stack(np.meshgrid(grid, grid), axis=-1)
        inside = criterion(name).gap(LAW.rates(name, pairs)) <= tolerance
        best = LAW.accuracy(pairs)[inside].max()
        exact = LAW.at(name, tolerance).accuracy
        assert exact - 1e-3 < best <= exact + 1e-12

    def test_a_large_sample_agrees_with_the_closed_forms(self, name):
        n = 200_000
        data = LAW.sample(n, random_state=1)
        point = LAW.at(name, 0.05)
        codes = np.searchsorted(LAW.names, data.groups)
        selected = data.logits > point.thresholds[codes]
        assert np.mean(selected == data.y) == pytest.approx(point.accuracy, abs=4 / np.sqrt(n))
        label = criterion(name).rate.eligible
        eligible = np.ones(n, dtype=bool) if label is None else data.y == label
        for a, rate in enumerate(LAW.rates(name, point.thresholds)):
            rows = eligible & (codes == a)
            assert rows.mean() == pytest.approx(LAW.eligible(name)[a], abs=4 / np.sqrt(n))
            assert selected[rows].mean() == pytest.approx(rate, abs=4 / np.sqrt(rows.sum()))


class TestSample:
    def test_it_carries_the_true_logits(self):
        data = make_gaussian(100)
        np.testing.assert_array_equal(data.logits, LAW.logits(data.X, data.groups))

    def test_the_true_logits_are_calibrated(self):
        data = THREE.sample(100_000, random_state=0)
        probability = 1 / (1 + np.exp(-data.logits))
        for low in np.arange(0.0, 1.0, 0.2):
            rows = (probability >= low) & (probability < low + 0.2)
            noise = 4 * 0.5 / np.sqrt(rows.sum())
            assert data.y[rows].mean() == pytest.approx(probability[rows].mean(), abs=noise)

    def test_the_groups_have_their_shares_and_base_rates(self):
        data = THREE.sample(100_000, random_state=0)
        for name, share, rate in zip(THREE.names, THREE.shares, THREE.base_rates, strict=True):
            rows = data.groups == name
            assert rows.mean() == pytest.approx(share, abs=0.01)
            assert data.y[rows].mean() == pytest.approx(rate, abs=0.02)

    def test_a_seed_decides_the_rows(self):
        first, again, other = (make_gaussian(50, random_state=seed) for seed in (3, 3, 4))
        assert first.X.equals(again.X)
        assert not first.X.equals(other.X)

    def test_names_are_sorted_however_many_groups_there_are(self):
        law = GaussianLaw((1 / 12,) * 12, (0.5,) * 12, (1.0,) * 12)
        assert list(law.names) == sorted(law.names)
        assert len(set(law.sample(1000).groups)) == 12

    def test_a_list_will_do(self):
        assert GaussianLaw([0.6, 0.4], [0.3, 0.6], [1.2, 1.5]) == LAW


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"shares": (0.6, 0.6)}, "`shares`"),
            ({"shares": (1.2, -0.2)}, "`shares`"),
            ({"base_rates": (0.3,)}, "`base_rates`"),
            ({"base_rates": (0.3, 1.0)}, "`base_rates`"),
            ({"separations": (0.0, 1.0)}, "`separations`"),
            ({"separations": (1.0, float("nan"))}, "`separations`"),
            ({"separations": "far"}, "`separations`"),
            ({"shares": ()}, "`shares`"),
        ],
    )
    def test_a_law_that_cannot_be_is_refused(self, arguments, message):
        with pytest.raises(InvalidInputError, match=message):
            GaussianLaw(**arguments)

    @pytest.mark.parametrize("n", [0, -1, 1.5, "many", True])
    def test_the_number_of_rows_must_be_one(self, n):
        with pytest.raises(InvalidInputError, match="`n`"):
            make_gaussian(n)

    def test_a_seed_must_be_a_whole_number(self):
        with pytest.raises(InvalidInputError, match="`random_state`"):
            make_gaussian(10, random_state=0.5)

    def test_the_multiplier_is_for_two_groups(self):
        with pytest.raises(InvalidInputError, match=r"`shares`.*got 3"):
            THREE.at("demographic_parity", 0.1)

    def test_thresholds_must_fit_the_groups(self):
        with pytest.raises(InvalidInputError, match=r"`thresholds`.*\(3,\)"):
            LAW.accuracy([0.0, 0.0, 0.0])

    def test_an_unknown_criterion_is_named(self):
        with pytest.raises(InvalidInputError, match="`criterion`"):
            LAW.at("parity", 0.1)

    def test_a_tolerance_lies_between_0_and_1(self):
        with pytest.raises(InvalidInputError, match="`tolerance`"):
            LAW.at("demographic_parity", 1.5)

    def test_an_unknown_group_is_named(self):
        with pytest.raises(UnknownGroupError, match="'nobody'"):
            LAW.logits(make_gaussian(1).X, ["nobody"])

    def test_the_feature_is_called_x(self):
        data = make_gaussian(5)
        with pytest.raises(InvalidInputError, match="with the column x"):
            LAW.logits(data.X.rename(columns={"x": "y"}), data.groups)
