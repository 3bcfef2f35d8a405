"""A network as a scorer: device, batches, evaluation mode, float64 logits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairdial.nn.nets import DialNet
from fairdial.nn.rows import Rows

ROWS_AT_ONCE = 4096


@torch.no_grad()
def score_rows(
    net: DialNet, rows: Rows, groups: NDArray[Any], *, at_once: int = ROWS_AT_ONCE
) -> NDArray[np.floating[Any]]:
    """(n,) mean logits of the members, each row by its group's net, in evaluation mode."""
    mode = net.training
    net.eval()
    dtype = next(net.parameters()).dtype
    scores: NDArray[np.floating[Any]] = np.empty(len(groups), np.float32)
    if dtype == torch.float64:
        scores = np.empty(len(groups), np.float64)
    for a in range(net.groups):
        places = np.flatnonzero(groups == a)
        for start in range(0, len(places), at_once):
            index = places[start : start + at_once]
            x = rows.take(torch.as_tensor(index)).to(dtype)
            scores[index] = net.of_group(x, a).mean(dim=0).cpu().numpy()
    net.train(mode)
    return scores


class NetScorer:
    """A trained network in float64: a row's score depends on its batch by rounding alone."""

    def __init__(self, net: DialNet, encode: Any) -> None:
        self.net = copy.deepcopy(net).double().eval()
        self.encode = encode

    def logits(self, X: Any, groups: NDArray[Any]) -> NDArray[np.float64]:
        """(n,) log-odds of the positive label."""
        return np.asarray(score_rows(self.net, self.encode(X), groups), np.float64)
