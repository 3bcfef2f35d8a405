"""
Turn the dial
=============

Train once, then choose how large the gap between groups may be.
"""

# %%
# Adult: who earns more than 50,000 dollars a year? The groups are women and men.

from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import FairBayes
from fairdial.datasets import load_adult

train, test = load_adult().split(test_size=0.2, random_state=0)
boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
model = FairBayes(boosting, criterion="demographic_parity", random_state=0)
model.fit(train.X, train.y, sensitive_features=train.groups)

# %%
# The whole trade-off, from one training.

model.frontier_.plot()
