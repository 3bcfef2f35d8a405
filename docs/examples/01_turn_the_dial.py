"""
Turn the dial
=============

Train a model once, then choose how large the gap between groups may be, as often as you like.
"""

# %%
# Who earns more than 50,000 dollars a year? The data are 48,842 people from the census data set
# Adult, and the groups are women and men. `FairBayes` puts the dial on any classifier; it holds out
# a fifth of the training rows for calibration.

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
# Without constraint
# ------------------
#
# A tolerance of 1 allows any gap. The model selects men far more often than women; the gap is the
# difference between the two selection rates.

unconstrained = model.predict(test.X, sensitive_features=test.groups, tolerance=1.0)
table = group_table(test.y, unconstrained, sensitive_features=test.groups)
print(table.round(3).to_string())

# %%
# Turn the dial
# -------------
#
# Each tolerance below is one call to `predict`. Nothing is retrained.

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
# These gaps are measured on new rows, so they may be slightly above the tolerance. Pass
# ``confidence=0.95`` if the tolerance has to hold on new data too.

print(model.frontier_.at(0.05))
print(model.frontier_.at(0.05, confidence=0.95))

# %%
# The whole trade-off
# -------------------
#
# `frontier_` holds every operating point, measured on the calibration rows.

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
# Whose decision changes?
# -----------------------
#
# Turning the dial from 0.10 to 0.05 changes the decision for some people: +1 marks those who are
# newly selected, -1 those who no longer are.

change = model.flips(test.X, 0.10, 0.05, sensitive_features=test.groups)
print(pd.crosstab(test.groups, change, rownames=["group"], colnames=["change"]).to_string())
