"""
Five methods on Adult
=====================

FairBayes, GFB, EPO, FairBiNN and YOTO under one interface. Small nets, few rows and short training
here: the curves show how the methods are used, not which one is best. :doc:`/choosing` has figures
from whole studies.
"""

# %%
# A sixth of Adult, and one small network for everybody.

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
# `fit`, `frontier_` and `predict(..., tolerance=)` are the same for all. The methods warn when they
# don't do what they are meant to, such as where a setting decides the same for everybody; after so
# short a training some do, and here we look away.

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
# FairBayes and GFB move thresholds: their frontier has a position for every row that changes its
# decision. EPO, FairBiNN and YOTO choose among trained settings: each dot is one of them.

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, model in models.items():
    model.frontier_.plot(ax, label=name)
    print(f"{name:10} {len(model.frontier_):5} positions")
ax.set_ylim(bottom=0.74)
plt.show()
