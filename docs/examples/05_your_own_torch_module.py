"""
Use your own torch module
=========================

GFB learns a representation for the dial, and any torch module can produce it. Here it is a small
convolutional network on a week of measurements.
"""

# %%
# Each row has seven numbers, and the groups differ in how their labels are generated.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

from fairdial import GFB, Network
from fairdial.datasets import Dataset

rng = np.random.default_rng(0)
n = 6_000
groups = rng.choice(["north", "south"], n, p=[0.6, 0.4])
week = rng.normal(size=(n, 7)).astype(np.float32) + 0.3 * (groups == "north")[:, None]
trend = week @ np.linspace(-1, 1, 7) + 0.5 * week.max(axis=1) + 0.4 * (groups == "north")
y = (trend + rng.normal(size=n) > np.median(trend)).astype(int)
days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
train, test = Dataset(pd.DataFrame(week, columns=days), y, groups, name="weeks").split(
    test_size=0.3, random_state=0
)

# %%
# The module
# ----------
#
# The module turns rows into features; fairdial adds the head and trains both. It copies the module
# for each group, as in the paper. ``encoder=None`` means that the rows are already numeric.


class Week(nn.Module):
    """Convolve over the days, then take the maximum and the mean."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.days = nn.Sequential(nn.Conv1d(1, channels, 3, padding=1), nn.ReLU())

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Turn (n, 7) rows into (n, 2 * channels) features."""
        found = self.days(rows.unsqueeze(1))
        return torch.cat([found.amax(dim=2), found.mean(dim=2)], dim=1)


class Watch:
    """Print progress after each epoch; returning True would stop training."""

    def on_epoch_end(self, epoch: int, record: dict, _: nn.Module) -> None:
        """Print the loss and the gap of every third epoch."""
        if epoch % 3 == 0:
            print(f"epoch {epoch}: loss {record['loss']:.3f}, gap {record['gap']:.3f}")


torch.manual_seed(0)
network = Network(
    trunk=Week(),
    head=16,
    members=1,
    epochs=10,
    learning_rate=5e-3,
    encoder=None,
    callbacks=[Watch()],
)
model = GFB(network=network, aux="solve", random_state=0)
model.fit(train.X, train.y, sensitive_features=train.groups)

# %%
# The training history
# --------------------
#
# `history_` has one row per epoch. ``interval_share`` is the share of rows whose decision the dial
# can change; GFB pulls these rows toward the fairest thresholds. ``aux_residual`` is NaN during the
# warm start, which is plain training.

columns = ["loss", "hypervolume", "gap", "interval_share", "aux_residual"]
print(model.history_[columns].round(3).to_string())

# %%

fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
model.plot_logits(test.X, sensitive_features=test.groups, ax=ax, label="scores by group")
plt.show()
print(model.frontier_.at([0.02, 0.05, 0.10]))
