"""
Turn the dial
=============

A model is trained once. How large the gap between groups may be is chosen afterwards, as often as
one likes.
"""

# %%
# Who earns more than 50,000 dollars a year? The rows are 48,842 people of the census data set
# Adult, the groups women and men. `FairBayes` puts the dial on any classifier; a fifth of the
# training rows is held out to find out where the dial stands.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import FairBayes
from fairdial.datasets import load_adult
from fairdial.metrics import gap, group_table

train, test = load_adult().split(test_size=0.2, random_state=0)
boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
model = FairBayes(boosting, criterion="demographic_parity", random_state=0)
model.fit(train.X, train.y, sensitive_features=train.groups)

# %%
# Nothing is constrained at first
# -------------------------------
#
# With a tolerance of 1 any gap is allowed. The model then selects men far more often than women:
# the gap is the difference of the two selection rates.

free = model.predict(test.X, sensitive_features=test.groups, tolerance=1.0)
table = group_table(test.y, free, sensitive_features=test.groups)
print(table.round(3).to_string())

# %%
# Turn it
# -------
#
# Each tolerance below is one call of `predict`. Nothing is trained again.

rows = []
for tolerance in (0.02, 0.05, 0.10, 0.15, 1.0):
    decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
    rows.append(
        {
            "tolerance": tolerance,
            "accuracy": (decisions == test.y).mean(),
            "gap": gap(test.y, decisions, sensitive_features=test.groups),
        }
    )
print(pd.DataFrame(rows).round(4).to_string(index=False))

# %%
# The gaps are those of new rows, so that they may lie a little above the tolerance. Say
# ``confidence=0.95`` for a tolerance that is to hold on new rows too.

print(model.frontier_.at(0.05))
print(model.frontier_.at(0.05, confidence=0.95))

# %%
# The whole trade-off
# -------------------
#
# `frontier_` holds every position of the dial, measured on the held-out rows.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
model.frontier_.plot(left, band=True)
left.set_title("what a smaller gap costs")

tolerances = [t / 100 for t in range(1, 19)]
points = model.frontier_.at(tolerances)
for group, thresholds in zip(model.frontier_.groups, points.thresholds.T, strict=True):
    right.plot(tolerances, thresholds, label=group)
right.set(xlabel="tolerance", ylabel="threshold (log-odds)", title="how the thresholds move")
right.legend()
plt.show()

# %%
# Who is decided otherwise?
# -------------------------
#
# Turning the dial from .10 to .05 changes decisions for some people: +1 are newly selected, -1 no
# longer.

moved = model.flips(test.X, 0.10, 0.05, sensitive_features=test.groups)
print(pd.crosstab(test.groups, moved, rownames=["group"], colnames=["moved"]).to_string())
