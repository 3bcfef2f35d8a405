"""
Five methods on Adult
=====================

FairBayes, GFB, EPO, FairBiNN and YOTO share one interface. The networks are small and training is
short, so the curves show how to use the methods, not which one is best; see :doc:`/choosing`.
"""

# %%
# We use a sixth of Adult and the same small network for every method.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fairdial import EPO, GFB, YOTO, FairBayes, FairBiNN, FairdialWarning, Network
from fairdial.datasets import load_adult
from fairdial.metrics import gap

adult = load_adult()
some = np.random.default_rng(0).choice(len(adult), 8_000, replace=False)
train, test = adult.subset(some).split(test_size=0.3, random_state=0)
network = Network(members=1, epochs=6, patience=None)

models = {
    "FairBayes": FairBayes(network, random_state=0),
    "GFB": GFB(network=network, random_state=0),
    "EPO": EPO(n_settings=5, network=network, random_state=0),
    "FairBiNN": FairBiNN(n_settings=5, eta=(0.05, 0.4), widen=0, network=network, random_state=0),
    "YOTO": YOTO(network=network, random_state=0),
}

# %%
# `fit`, `frontier_` and `predict(..., tolerance=)` work the same for all methods. They warn when
# something looks wrong, for example when a setting makes the same decision for everybody. Some do
# after such short training, so we ignore the warnings here.

warnings.simplefilter("ignore", FairdialWarning)
rows = []
for name, model in models.items():
    model.fit(train.X, train.y, sensitive_features=train.groups)
    for tolerance in (0.05, 0.10):
        decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
        rows.append(
            {
                "method": name,
                "tolerance": tolerance,
                "accuracy": (decisions == test.y).mean(),
                "gap": gap(test.y, decisions, sensitive_features=test.groups),
            }
        )
print(pd.DataFrame(rows).pivot(index="method", columns="tolerance").round(3).to_string())

# %%
# Two kinds of dial
# -----------------
#
# FairBayes and GFB move thresholds: their frontier has an operating point for every row that
# changes its decision. EPO, FairBiNN and YOTO choose among trained models: each dot is one of them.

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, model in models.items():
    model.frontier_.plot(ax, label=name)
    print(f"{name:10} {len(model.frontier_):5} operating points")
ax.set_ylim(bottom=0.74)
plt.show()
