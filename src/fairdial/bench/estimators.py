"""The estimators that a plan can name."""

from __future__ import annotations

from typing import Any

from fairdial.bench.variants import ByShares, Distilled, WholeDial
from fairdial.methods.auto import AutoDial
from fairdial.methods.epo import EPO
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.fairbinn import FairBiNN
from fairdial.methods.gfb import GFB
from fairdial.methods.yoto import YOTO

ESTIMATORS: dict[str, Any] = {
    "GFB": GFB,
    "FairBayes": FairBayes,
    "EPO": EPO,
    "FairBiNN": FairBiNN,
    "YOTO": YOTO,
    "ByShares": ByShares,
    "WholeDial": WholeDial,
    "Distilled": Distilled,
    "AutoDial": AutoDial,
}
