"""
Use your own classifier
=======================

The dial works with any classifier that gives scores: one that you train here, one that is already
trained, or the scores alone.
"""

# %%
# The data come from a distribution whose best trade-off is known in closed form, so we can compare.

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
# Train a pipeline
# ----------------
#
# `per_group=True` trains a clone per group.

pipeline = make_pipeline(StandardScaler(), LogisticRegression())
fresh = FairBayes(pipeline, per_group=True, random_state=0)
fresh.fit(train.X, train.y, sensitive_features=train.groups)
print(fresh.frontier_.at(0.05))

# %%
# Use a trained model
# -------------------
#
# Nothing is trained here. Calibrate on rows that the model hasn't seen.

forest = RandomForestClassifier(100, min_samples_leaf=50, random_state=0)
forest.fit(np.c_[train.X, train.groups == "group 1"], train.y)

seen = np.c_[held_out.X, held_out.groups == "group 1"]
ready = FairBayes(forest, prefit=True)
ready.calibrate(seen, held_out.y, sensitive_features=held_out.groups)
print(ready.frontier_.at(0.05))

# %%
# Use scores alone
# ----------------
#
# Scores may come from another language, a service or a warehouse table. They are log-odds;
# `proba_to_logits` converts probabilities.

probabilities = forest.predict_proba(seen)[:, 1]
frontier = sweep(proba_to_logits(probabilities), held_out.groups, held_out.y)
decisions = frontier.decide(proba_to_logits(probabilities), held_out.groups, tolerance=0.05)
same = ready.predict(seen, sensitive_features=held_out.groups, tolerance=0.05) == decisions
print(f"{decisions.mean():.3f} selected; same decisions as above: {same.all()}")

# %%
# Compare with the best possible trade-off
# ----------------------------------------

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
fresh.frontier_.plot(ax, label="logistic regression per group")
ready.frontier_.plot(ax, label="random forest")
law = GaussianLaw()  # the defaults of make_gaussian
tolerances = np.linspace(0.0, fresh.frontier_.gap.max(), 40)
best = [law.at("demographic_parity", tolerance).accuracy for tolerance in tolerances]
ax.plot(tolerances, best, "k--", label="best possible")
ax.legend()
plt.show()
