"""
Equalized odds with costs and a budget
======================================

A program has places for one person in five. Missing somebody who needs it is five times as bad as
taking somebody who doesn't. And neither error may hit one group much more often than the other.
"""

# %%
# Train once
# ----------
#
# The data are those of the census again; the label stands for the need. Equalized odds limits the
# differences of true positive rates *and* of false positive rates.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import Costs, FairBayes
from fairdial.datasets import load_adult
from fairdial.metrics import group_table

train, test = load_adult().split(test_size=0.2, random_state=0)
rows, held = train.split(test_size=0.25, random_state=0)
boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
boosting.fit(rows.X, rows.y)
model = FairBayes(boosting, prefit=True, criterion="equalized_odds", tolerance=0.05)
model.calibrate(held.X, held.y, sensitive_features=held.groups)
print(model.frontier_.at(0.05))

# %%
# Change the objective
# --------------------
#
# Costs, budget and criterion belong to calibration: the classifier is never trained again. The mean
# cost per person is measured on the test rows.

costs = Costs(false_positive=1, false_negative=5)
goals = {
    "accuracy": {"objective": "accuracy", "budget": None},
    "costs": {"objective": costs, "budget": None},
    "costs, at most 20%": {"objective": costs, "budget": 0.2},
}


def measure(decisions):
    """Return what decisions do on the test rows."""
    table = group_table(test.y, decisions, sensitive_features=test.groups)
    missed, taken = (test.y == 1) & (decisions == 0), (test.y == 0) & (decisions == 1)
    return {
        "selected": decisions.mean(),
        "mean cost": (5 * missed + taken).mean(),
        "TPR gap": np.ptp(table["true_positive_rate"]),
        "FPR gap": np.ptp(table["false_positive_rate"]),
    }


lines = {}
for name, goal in goals.items():
    model.set_params(**goal).calibrate(held.X, held.y, sensitive_features=held.groups)
    lines[name] = measure(model.predict(test.X, sensitive_features=test.groups))
print(pd.DataFrame(lines).T.round(3).to_string())

# %%
# With costs alone, two people in five would be selected. The budget holds on the calibration rows;
# on the test rows the share differs a little, and so do the gaps.
#
# What the limits cost
# --------------------
#
# The same scores, with and without the budget, at every tolerance:

tolerances = np.linspace(0.01, 0.12, 23)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, goal in goals.items():
    if goal["objective"] is costs:
        model.set_params(**goal).calibrate(held.X, held.y, sensitive_features=held.groups)
        ax.plot(tolerances, -model.frontier_.at(tolerances).value, marker=".", label=name)
ax.set(xlabel="tolerance", ylabel="mean cost per person", ylim=(0, None))
ax.legend()
plt.show()

# %%
# Each rate has its own gap
# -------------------------
#
# `gap` is the larger of the two, and `gaps` has both. `bound` is the best value that any rule
# within the tolerance could have, even one that draws lots; the difference is what deterministic
# decisions cost.

point = model.frontier_.at(0.05)
print({name: round(gap, 4) for name, gap in point.gaps.items()})
print(f"expected {point.expected_value:.4f}, bound {point.bound:.4f}")

# %%
# Nobody loses
# ------------
#
# Thresholds that only fall keep every positive decision. Within a budget that is already used up
# there is no room for that, so this dial has none.

model.set_params(rising=True, objective="accuracy", budget=None)
model.calibrate(held.X, held.y, sensitive_features=held.groups)
change = model.flips(test.X, 1.0, 0.05, sensitive_features=test.groups)
print(pd.crosstab(test.groups, change, rownames=["group"], colnames=["change"]).to_string())
