"""
Bring your own classifier
=========================

The dial takes any classifier that gives scores: one that is still to be trained, one that is
trained already, or nothing but its scores.
"""

# %%
# Rows from a law whose best trade-off is known in closed form, so that we can see how near we get.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdial import FairBayes, proba_to_logits, sweep
from fairdial.datasets import GaussianLaw, make_gaussian

train, held_out = make_gaussian(20_000, random_state=0).split(test_size=0.5, random_state=0)

# %%
# A pipeline that is trained here
# -------------------------------
#
# `per_group=True` trains a clone for each group.

pipeline = make_pipeline(StandardScaler(), LogisticRegression())
fresh = FairBayes(pipeline, per_group=True, random_state=0)
fresh.fit(train.X, train.y, sensitive_features=train.groups)
print(fresh.frontier_.at(0.05))

# %%
# A model that exists already
# ---------------------------
#
# It is not trained again; rows that it has not seen find the frontier.

forest = RandomForestClassifier(100, min_samples_leaf=50, random_state=0)
forest.fit(np.c_[train.X, train.groups == "group 1"], train.y)

seen = np.c_[held_out.X, held_out.groups == "group 1"]
ready = FairBayes(forest, prefit=True)
ready.calibrate(seen, held_out.y, sensitive_features=held_out.groups)
print(ready.frontier_.at(0.05))

# %%
# Scores alone
# ------------
#
# From whatever made them: another language, a service, a table in a warehouse. Scores are
# log-odds; `proba_to_logits` makes them from probabilities.

probabilities = forest.predict_proba(seen)[:, 1]
frontier = sweep(proba_to_logits(probabilities), held_out.groups, held_out.y)
decisions = frontier.decide(proba_to_logits(probabilities), held_out.groups, tolerance=0.05)
same = ready.predict(seen, sensitive_features=held_out.groups, tolerance=0.05) == decisions
print(f"{decisions.mean():.3f} selected; the same decisions as above: {same.all()}")

# %%
# How good are they?
# ------------------

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
fresh.frontier_.plot(ax, label="logistic regression for each group")
ready.frontier_.plot(ax, label="random forest")
law = GaussianLaw()  # the defaults of make_gaussian
tolerances = np.linspace(0.0, fresh.frontier_.gap.max(), 40)
best = [law.at("demographic_parity", tolerance).accuracy for tolerance in tolerances]
ax.plot(tolerances, best, "k--", label="the best that there is")
ax.legend()
plt.show()
