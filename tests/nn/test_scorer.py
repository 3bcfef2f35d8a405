from __future__ import annotations

import numpy as np
import torch

from fairdial.nn.nets import DialNet, Head, MLPTrunk
from fairdial.nn.rows import TensorRows
from fairdial.nn.scorer import NetScorer, score_rows


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
    scores = score_rows(net, TensorRows(x), codes)
    for i in range(0, len(codes), 5):
        alone = net.of_group(x[i : i + 1], int(codes[i])).mean()
        np.testing.assert_allclose(scores[i], float(alone.detach()), rtol=1e-5, atol=1e-6)


def test_scoring_leaves_the_mode_as_it_was() -> None:
    net = net_of()
    x, codes = rows()
    for mode in (True, False):
        net.train(mode)
        one, two = (score_rows(net, TensorRows(x), codes) for _ in range(2))
        assert net.training is mode
        assert np.array_equal(one, two)  # no dropout


def test_a_rows_score_does_not_depend_on_its_batch() -> None:
    scorer = NetScorer(net_of(), TensorRows)
    x, codes = rows()
    together = scorer.logits(x, codes)
    assert together.dtype == np.float64
    for at_once in (1, 2, 7):
        some = score_rows(scorer.net, TensorRows(x), codes, at_once=at_once)
        np.testing.assert_allclose(some, together, rtol=1e-13, atol=1e-14)
    order = np.random.default_rng(3).permutation(len(codes))
    np.testing.assert_allclose(
        scorer.logits(x[torch.as_tensor(order)], codes[order]), together[order], rtol=1e-13
    )


def test_a_scorer_is_a_copy_that_training_on_does_not_change() -> None:
    net = net_of()
    scorer = NetScorer(net, TensorRows)
    x, codes = rows()
    before = scorer.logits(x, codes)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert np.array_equal(scorer.logits(x, codes), before)
