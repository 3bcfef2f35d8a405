"""
Audit and recalibrate
=====================

A model is in use. Months later other people apply: is the gap still what it was? And if not, what
can be done without training again?
"""

# %%
# The model of the beginning
# --------------------------
#
# Its tolerance was declared and certified: with 95% confidence the gap of people *like those of
# calibration* is at most .10.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes
from fairdial.confidence import gap_interval
from fairdial.datasets import make_gaussian
from fairdial.metrics import group_table

then = make_gaussian(20_000, random_state=0)
model = FairBayes(LogisticRegression(), per_group=True, tolerance=0.10, random_state=0)
model.fit(then.X, then.y, sensitive_features=then.groups)
print(model.frontier_.at(0.10, confidence=0.95))

# %%
# Other people
# ------------
#
# In group 0 fewer have a positive label now than then.

now = make_gaussian(12_000, base_rates=(0.18, 0.6), random_state=1)


def audit(model, rows):
    """Selection rates, and an interval for the gap of the decisions."""
    decisions = model.predict(rows.X, sensitive_features=rows.groups, confidence=0.95)
    table = group_table(rows.y, decisions, sensitive_features=rows.groups)
    selected = (table["selection_rate"] * table["rows"]).round().astype(int)
    low, high = gap_interval(selected.tolist(), table["rows"].tolist(), confidence=0.95)
    return {
        "accuracy": (decisions == rows.y).mean(),
        **table["selection_rate"].to_dict(),
        "gap at least": low,
        "gap at most": high,
    }


print(pd.DataFrame([audit(model, now)]).round(3).to_string(index=False))

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, rows, label in zip(axes, (then, now), ("then", "now"), strict=True):
    model.plot_logits(rows.X, sensitive_features=rows.groups, ax=ax, label=label)
plt.show()

# %%
# The model is unchanged and so are its thresholds, but the certificate spoke of another population.
# Selection rates need no labels, so this much can be seen every day.
#
# Recalibrate
# -----------
#
# Fresh rows and the same scores: the dial is found anew. For demographic parity no labels are
# needed. We keep a part of the new rows to look at the result.

fresh, rest = now.split(test_size=0.5, random_state=0)
before = model.thresholds(confidence=0.95)
model.calibrate(fresh.X, sensitive_features=fresh.groups)
after = model.thresholds(confidence=0.95)
print(pd.DataFrame({"before": before, "after": after}).round(3).to_string())
print(pd.DataFrame([audit(model, rest)]).round(3).to_string(index=False))

# %%
# On these rows the gap is within the tolerance again; the interval is as wide as half of the rows
# make it. What no calibration does is make outdated scores good ones: with fresh labels,
# ``recalibrate="group"`` corrects each group's scores by a line, and a new training does more.
