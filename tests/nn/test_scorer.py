from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairdial import EPO, YOTO, FairBayes, FairBiNN, FairdialWarning, Network
from fairdial.nn.build import build_net
from fairdial.nn.data import TensorInputs
from fairdial.nn.nets import DialNet, Head, MLPTrunk
from fairdial.nn.scorer import FilmScorer, NetScorer, RunsScorer, score_rows, score_runs


def net_of(members: int = 3, groups: int = 3) -> DialNet:
    generator = torch.Generator().manual_seed(0)
    nets = members * groups
    trunk = MLPTrunk(nets, (4, 8), generator, dropout=0.5)
    return DialNet(trunk, Head(nets, 8, 5, generator), members=members, groups=groups)


def rows(n: int = 57) -> tuple[torch.Tensor, np.ndarray]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return x, np.random.default_rng(0).integers(0, 3, n)


def test_a_rows_score_is_its_own_nets_mean_over_the_members() -> None:
    net = net_of().eval()
    x, codes = rows()
    scores = score_rows(net, TensorInputs(x), codes)
    for i in range(0, len(codes), 5):
        alone = net.of_group(x[i : i + 1], int(codes[i])).mean()
        np.testing.assert_allclose(scores[i], float(alone.detach()), rtol=1e-5, atol=1e-6)


def test_scoring_leaves_the_mode_as_it_was() -> None:
    net = net_of()
    x, codes = rows()
    for mode in (True, False):
        net.train(mode)
        one, two = (score_rows(net, TensorInputs(x), codes) for _ in range(2))
        assert net.training is mode
        assert np.array_equal(one, two)  # no dropout


def test_a_rows_score_does_not_depend_on_its_batch() -> None:
    scorer = NetScorer(net_of(), TensorInputs)
    x, codes = rows()
    together = scorer.logits(x, codes)
    assert together.dtype == np.float64
    for batch_rows in (1, 2, 7):
        some = score_runs(scorer.net, TensorInputs(x), codes, batch_rows=batch_rows)[0]
        np.testing.assert_allclose(some, together, rtol=1e-13, atol=1e-14)
    order = np.random.default_rng(3).permutation(len(codes))
    np.testing.assert_allclose(
        scorer.logits(x[torch.as_tensor(order)], codes[order]), together[order], rtol=1e-13
    )


def test_a_scorer_is_a_copy_that_training_on_does_not_change() -> None:
    net = net_of()
    scorer = NetScorer(net, TensorInputs)
    x, codes = rows()
    before = scorer.logits(x, codes)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert np.array_equal(scorer.logits(x, codes), before)


# ---- several runs ------------------------------------------------------------------------------


def stack_of(runs: int = 3, *, shared: bool = False, seed: int = 0, members: int = 2) -> DialNet:
    """Runs that differ."""
    network = Network(hidden=(8, 6), head=5, members=members, shared=shared, dropout=0.5)
    net = build_net(network, torch.zeros(2, 4), 3, seed, runs=runs)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.3 * torch.randn(p.shape, generator=draw)
    return net.double()


def alone(net: DialNet, run: int) -> DialNet:
    """One run of a stack, as a net of its own."""
    own = pickle.loads(pickle.dumps(net))
    own.keep([run])
    own.kept = [0]
    return own


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch_rows", [5, 4096])
def test_runs_score_together_as_each_alone(shared: bool, batch_rows: int) -> None:
    net = stack_of(shared=shared)
    x, codes = rows()
    together = score_runs(net, TensorInputs(x), codes, batch_rows=batch_rows)
    assert together.shape == (3, 57)
    for r in range(3):
        own = score_rows(alone(net, r), TensorInputs(x), codes)
        np.testing.assert_allclose(together[r], own, rtol=1e-12, atol=1e-14)
        picked = score_runs(net, TensorInputs(x), codes, run=r, batch_rows=batch_rows)
        assert picked.shape == (1, 57)
        np.testing.assert_allclose(picked[0], own, rtol=1e-12, atol=1e-14)
    assert not np.allclose(together[0], together[1], rtol=1e-2)


def test_runs_that_are_left_score_by_their_place() -> None:
    net = stack_of(4)
    x, codes = rows()
    before = score_runs(net, TensorInputs(x), codes)
    net.keep([3, 1])
    after = score_runs(net, TensorInputs(x), codes)
    np.testing.assert_allclose(after, before[[3, 1]], rtol=1e-12)
    np.testing.assert_allclose(
        score_runs(net, TensorInputs(x), codes, run=0)[0], before[3], rtol=1e-12
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_are_as_exact_as_the_net(kind: Any) -> None:
    net = stack_of().to(torch.float32 if kind is np.float32 else torch.float64)
    x, codes = rows()
    for features in (x, x.double()):
        assert score_runs(net, TensorInputs(features), codes).dtype == kind


def test_no_rows_have_no_scores() -> None:
    x, codes = rows(0)
    assert score_runs(stack_of(), TensorInputs(x), codes).shape == (3, 0)
    scorer = RunsScorer([stack_of()], np.array([0.1, 0.2, 0.3]), TensorInputs)
    assert scorer.margins(scorer.prepare(x, codes), codes, 0.2).shape == (0,)


def test_a_group_without_rows_is_allowed() -> None:
    net = stack_of()
    x, codes = rows()
    some = codes != 1
    whole = score_runs(net, TensorInputs(x), codes)
    part = score_runs(net, TensorInputs(x[torch.as_tensor(some)]), codes[some])
    np.testing.assert_allclose(part, whole[:, some], rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", [(4,), (3, 1), (1, 2, 1), (1, 1, 1, 1)])
def test_each_setting_is_scored_by_the_run_that_was_trained_for_it(
    shared: bool, sizes: tuple[int, ...]
) -> None:
    nets = [stack_of(size, shared=shared, seed=i) for i, size in enumerate(sizes)]
    settings = np.array([0.01, 7.0, 0.3, 2.0])  # in no order
    scorer = RunsScorer(nets, settings, TensorInputs)
    x, codes = rows()
    prepared = scorer.prepare(x, codes)
    owners = [(net, r) for net in nets for r in range(net.runs)]
    for setting, (net, run) in zip(settings, owners, strict=True):
        expected = score_rows(alone(net, run), TensorInputs(x), codes)
        found = scorer.margins(prepared, codes, float(setting))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_a_scorer_of_runs_is_a_copy_and_comes_back_from_a_file() -> None:
    nets = [stack_of(2), stack_of(1, seed=1)]
    settings = np.array([1.0, 2.0, 3.0])
    scorer = RunsScorer(nets, settings, TensorInputs)
    x, codes = rows()
    prepared = scorer.prepare(x, codes)
    before = [scorer.margins(prepared, codes, s) for s in settings]
    again = pickle.loads(pickle.dumps(scorer))
    with torch.no_grad():
        for net in nets:
            for p in net.parameters():
                p.zero_()
    for one in (scorer, again):
        assert all(
            np.array_equal(one.margins(prepared, codes, s), b)
            for s, b in zip(settings, before, strict=True)
        )


# ---- one modulated net -------------------------------------------------------------------------

TRUNKS: dict[str, dict[str, Any]] = {
    "shared": {"shared": True},
    "separate": {"shared": False},
    "module": {"trunk": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5))},
    "normalized module": {"trunk": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))},
}


def film_net(kind: str, members: int = 2) -> DialNet:
    torch.manual_seed(0)
    network = Network(**({"hidden": (8, 6), "head": 5, "members": members} | TRUNKS[kind]))
    film = {"hidden": 4, "identity": False}
    return build_net(network, torch.zeros(2, 4), 3, 0, film=film)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", TRUNKS)
def test_a_modulated_nets_margins_are_those_of_each_row_alone(kind: str, members: int) -> None:
    net = film_net(kind, members)
    scorer = FilmScorer(net, lambda setting: 2.0 * setting - 1.0, TensorInputs)
    x, codes = rows(600)  # more than a batch of features in a group
    prepared = scorer.prepare(x, codes)
    exact = pickle.loads(pickle.dumps(net)).double().eval()
    margins = []
    for setting in (0.0, 0.3, 2.0):
        found = scorer.margins(prepared, codes, setting)
        direct = score_runs(exact, TensorInputs(x), codes, condition=2.0 * setting - 1.0)[0]
        np.testing.assert_allclose(found, direct, rtol=1e-12, atol=1e-14)
        for i in range(0, 600, 97):
            row, a = x[i : i + 1].double(), int(codes[i])
            one = exact.of_group(row, a, condition=2.0 * setting - 1.0).mean()
            assert found[i] == pytest.approx(float(one.detach()), rel=1e-11, abs=1e-13)
        margins.append(found)
    assert not np.allclose(margins[0], margins[1], rtol=1e-3)
    assert not np.allclose(margins[1], margins[2], rtol=1e-3)


@pytest.mark.parametrize(("kind", "calls"), [("module", 1), ("separate", 3)])
def test_a_users_trunk_runs_once_for_all_settings(kind: str, calls: int) -> None:
    scorer = FilmScorer(film_net(kind), float, TensorInputs)
    seen: list[int] = []
    scorer.net.trunk.register_forward_hook(lambda *_: seen.append(1))
    x, codes = rows()
    prepared = scorer.prepare(x, codes)
    for setting in (0.1, 1.0, 5.0):
        scorer.margins(prepared, codes, setting)
    assert len(seen) == 3 * calls  # of three groups


def test_features_of_rows_in_any_order_are_those_of_their_rows() -> None:
    scorer = FilmScorer(film_net("module"), float, TensorInputs)
    x, codes = rows()
    order = np.random.default_rng(3).permutation(57)
    whole = scorer.margins(scorer.prepare(x, codes), codes, 0.5)
    mixed = scorer.prepare(x[torch.as_tensor(order)], codes[order])
    np.testing.assert_allclose(
        scorer.margins(mixed, codes[order], 0.5), whole[order], rtol=1e-12, atol=1e-14
    )


def test_a_modulated_scorer_comes_back_from_a_file() -> None:
    scorer = FilmScorer(film_net("separate"), float, TensorInputs)
    x, codes = rows()
    again = pickle.loads(pickle.dumps(scorer))
    for setting in (0.1, 3.0):
        one, two = (s.margins(s.prepare(x, codes), codes, setting) for s in (scorer, again))
        assert np.array_equal(one, two)


# ---- training rows are let go ------------------------------------------------------------------


FITS: dict[str, Any] = {
    "NetScorer": lambda network: FairBayes(network, random_state=0, min_count=5),
    "RunsScorer": lambda network: EPO(2, network=network, random_state=0, min_count=5),
    "RunsScorer of FairBiNN": lambda network: FairBiNN(
        2, widen=0, network=network, random_state=0, min_count=5
    ),
    "FilmScorer": lambda network: YOTO(network=network, targets=2, random_state=0, min_count=5),
}


@pytest.mark.parametrize("kind", FITS)
def test_a_fitted_scorer_is_as_small_for_many_rows_as_for_few(kind: str) -> None:
    sizes = []
    for n in (400, 4000):
        rng = np.random.default_rng(0)
        groups = rng.integers(0, 2, n)
        X = rng.standard_normal((n, 10)).astype(np.float32)
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-X[:, 0] - groups))
        network = Network(hidden=(4,), head=3, members=1, epochs=1, batch_size=512)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            model = FITS[kind](network).fit(X, y, sensitive_features=groups)
        assert type(model.scorer_).__name__ == kind.split()[0]
        sizes.append(len(pickle.dumps(model.scorer_)))
    assert abs(sizes[1] - sizes[0]) < 1000  # the rows themselves are 160 kB
