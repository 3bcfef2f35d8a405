from __future__ import annotations

import numpy as np
import pytest
import torch

from fairdial import criterion
from fairdial.nn.data import (
    DatasetInputs,
    InputEncoder,
    PairedBatches,
    TensorInputs,
    TrainingData,
)

N = 23
CODES = np.repeat([0, 1], [17, 6])
PARTS = [np.flatnonzero(a == CODES) for a in (0, 1)]


def batches(size: int = 4, seed: int = 0, epoch: str = "long") -> PairedBatches:
    """Rows whose only feature is their position."""
    features = torch.arange(N, dtype=torch.float32)[:, None]
    y = torch.arange(N, dtype=torch.float32) % 2
    return PairedBatches(TensorInputs(features), y, PARTS, size=size, seed=seed, epoch=epoch)


def test_every_batch_pairs_the_groups_and_their_labels() -> None:
    source = batches()
    for _ in range(30):
        x, y = source.next()
        assert x.shape == (2, 4, 1)
        places = x[..., 0].long()
        for a in (0, 1):
            assert (CODES[places[a].numpy()] == a).all()
        assert torch.equal(y, (places % 2).float())


@pytest.mark.parametrize(("epoch", "steps"), [("long", 5), ("short", 2)])
def test_an_epoch_is_one_pass_over_the_longest_or_shortest_group(epoch: str, steps: int) -> None:
    assert batches(epoch=epoch).steps == steps


def test_every_row_comes_once_before_any_comes_again() -> None:
    source = batches(size=3)
    drawn = torch.cat([source.next()[0][..., 0].long() for _ in range(34)], dim=1)
    for a, part in enumerate(PARTS):
        for start in range(0, drawn.shape[1] - len(part) + 1, len(part)):
            round_ = drawn[a, start : start + len(part)]
            assert sorted(round_.tolist()) == part.tolist()


def test_a_group_smaller_than_a_batch_repeats_its_rows() -> None:
    x, _ = batches(size=16).next()
    counts = np.bincount(x[1, :, 0].long().numpy(), minlength=N)[PARTS[1]]
    assert counts.min() >= 2
    assert counts.max() <= 3


def test_the_same_seed_draws_the_same_batches_and_another_others() -> None:
    def first_places(seed: int) -> list[float]:
        source = batches(seed=seed)
        return torch.cat([source.next()[0] for _ in range(9)]).flatten().tolist()

    assert first_places(0) == first_places(0)
    assert first_places(0) != first_places(1)


def test_a_restored_state_resumes_with_the_same_batches() -> None:
    source, other = batches(), batches(seed=5)
    for _ in range(3):
        source.next()
    state = source.state()
    expected = [source.next()[0] for _ in range(12)]
    other.restore(state)
    assert all(torch.equal(other.next()[0], x) for x in expected)


def test_dataset_items_may_be_pairs() -> None:
    pairs = [(np.full((2, 2), i), i % 2) for i in range(5)]
    rows = DatasetInputs(pairs, torch.device("cpu"))
    alone = DatasetInputs([p[0] for p in pairs], torch.device("cpu"))
    index = torch.tensor([3, 0, 3])
    taken = rows.take(index)
    assert taken.dtype == torch.float32
    assert taken.shape == (3, 2, 2)
    assert torch.equal(taken, alone.take(index))
    assert taken[:, 0, 0].tolist() == [3.0, 0.0, 3.0]
    assert len(rows) == 5


# ---- weights -----------------------------------------------------------------------------------


def weighted_batches(weights: np.ndarray, size: int = 4, seed: int = 0) -> PairedBatches:
    features = torch.arange(N, dtype=torch.float32)[:, None]
    y = torch.arange(N, dtype=torch.float32) % 2
    each = [weights[part] for part in PARTS]
    return PairedBatches(TensorInputs(features), y, PARTS, size=size, seed=seed, weights=each)


def drawn_rows(source: PairedBatches, passes: int) -> list[np.ndarray]:
    """Rows of each group, pass by pass, (passes, rows)."""
    found = [[] for _ in PARTS]
    for _ in range(passes * N):
        for a, rows in enumerate(source.next()[0][..., 0].long().numpy()):
            found[a] += rows.tolist()
    return [
        np.array(found[a][: passes * len(part)]).reshape(passes, -1) for a, part in enumerate(PARTS)
    ]


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_a_row_comes_as_often_as_its_weight_says_in_every_pass(scale: float) -> None:
    weights = scale * np.random.default_rng(0).exponential(size=N)
    weights[[2, 20]] = 0.0
    for part, passes in zip(PARTS, drawn_rows(weighted_batches(weights), 400), strict=True):
        expected = weights[part] / weights[part].mean()
        counts = np.array([[(rows == row).sum() for row in part] for rows in passes])
        assert (counts >= np.floor(expected - 1e-9)).all()
        assert (counts <= np.ceil(expected + 1e-9)).all()
        np.testing.assert_allclose(counts.mean(axis=0), expected, atol=0.1)


def test_equal_weights_draw_every_row_once() -> None:
    for part, passes in zip(PARTS, drawn_rows(weighted_batches(np.full(N, 0.3)), 5), strict=True):
        for rows in passes:
            assert sorted(rows.tolist()) == part.tolist()


def test_weighted_batches_resume() -> None:
    weights = np.random.default_rng(1).random(N)
    one, other = weighted_batches(weights), weighted_batches(weights, seed=5)
    for _ in range(7):
        one.next()
    other.restore(one.state())
    for _ in range(20):
        assert torch.equal(one.next()[0], other.next()[0])


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_shares_of_whole_weights_are_those_of_repeated_rows(name: str) -> None:
    rng = np.random.default_rng(2)
    counts, y = rng.integers(1, 4, N), rng.random(N) < 0.5
    encode, empty = InputEncoder(None, torch.device("cpu")), np.zeros(0, np.intp)

    def shares(places: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        every = np.arange(len(places))
        inputs = TensorInputs(torch.zeros(len(places), 1))
        kind = criterion(name)
        data = TrainingData(inputs, y[places], CODES[places], 2, every, empty, kind, encode)
        data.weights = weights
        return data.shares()

    repeated = shares(np.repeat(np.arange(N), counts), None)
    np.testing.assert_array_equal(shares(np.arange(N), counts), repeated)
    assert repeated.sum() <= 1.0 + 1e-12
