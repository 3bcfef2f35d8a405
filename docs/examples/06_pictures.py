"""
Train on pictures
=================

Faces are personal data that we can't redistribute, so this example draws its own pictures: gray
discs in files named like those of UTKFace. With your own copy of UTKFace, only the path changes.
"""

# %%
# Files are named ``age_gender_race_date.jpg.chip.jpg``. "Older" discs are larger, and the discs of
# one group are brighter.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn

from fairdial import FairBayes, Network
from fairdial.datasets import load_utkface
from fairdial.metrics import group_table

rng = np.random.default_rng(0)
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
across = np.linspace(-1, 1, 24)
distance = np.hypot(*np.meshgrid(across, across))
for i in range(1200):
    gender = int(rng.random() < 0.45)
    age = int(np.clip(rng.normal(34 - 8 * gender, 12), 1, 99))
    disc = distance < 0.25 + age / 150 + rng.normal(0, 0.08)
    gray = 90 + 60 * gender + 60 * disc + rng.normal(0, 25, distance.shape)
    picture = Image.fromarray(np.clip(gray, 0, 255).astype(np.uint8)).convert("RGB")
    picture.save(folder / f"{age}_{gender}_0_{20170116000000 + i}.jpg.chip.jpg")

# %%
# Load the pictures
# -----------------
#
# They are decoded once and then read from one file. The label is 1 for ages 30 and up; the group is
# in the file name.

data = load_utkface(folder, size=24, cache=folder / "cache")
print(data.describe())
train, test = data.split(test_size=0.25, random_state=0)

fig, axes = plt.subplots(1, 6, figsize=(9, 2), layout="constrained")
for ax, place in zip(axes, range(0, 900, 150), strict=True):
    ax.imshow(train.X.uint8([place])[0].transpose(1, 2, 0))
    ax.set_title(f"{train.groups[place]}, {train.y[place]}", fontsize=9)
    ax.axis("off")
plt.show()

# %%
# Train a small network end to end
# --------------------------------
#
# For real pictures, use ``ResNet18("resnet18.pth")`` from `fairdial.nn.resnet`.

torch.manual_seed(0)
trunk = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten()
)
network = Network(trunk=trunk, head=16, members=1, epochs=8, batch_size=64, learning_rate=3e-3)
model = FairBayes(network, random_state=0)
model.fit(train.X, train.y, sensitive_features=train.groups)

for tolerance in (1.0, 0.10):
    decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
    print(f"tolerance {tolerance}: accuracy {(decisions == test.y).mean():.1%}")
    print(group_table(test.y, decisions, sensitive_features=test.groups).round(2).to_string())

temporary.cleanup()
