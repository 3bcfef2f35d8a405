"""Data sets for examples and studies.

Two tables are included, other tables and two sets of pictures are read from your own copies, and a
Gaussian law has a known best trade-off. ``fairdial.datasets.registry.DATASETS`` has a
record of each.
"""

from fairdial.datasets.acs import load_acs
from fairdial.datasets.adult import load_adult
from fairdial.datasets.base import Dataset
from fairdial.datasets.celeba import load_celeba
from fairdial.datasets.compas import load_compas
from fairdial.datasets.own_tables import (
    load_credit_default,
    load_dutch_census,
    load_kdd_census,
    load_law_school,
)
from fairdial.datasets.pictures import Pictures
from fairdial.datasets.registry import BUILT_IN, DATASETS, DatasetInfo, register_dataset
from fairdial.datasets.synthetic import GaussianLaw, make_gaussian
from fairdial.datasets.utkface import load_utkface

__all__ = [
    "Dataset",
    "DatasetInfo",
    "GaussianLaw",
    "Pictures",
    "load_acs",
    "load_adult",
    "load_celeba",
    "load_compas",
    "load_credit_default",
    "load_dutch_census",
    "load_kdd_census",
    "load_law_school",
    "load_utkface",
    "make_gaussian",
    "register_dataset",
]

BUILT_IN.update(DATASETS)  # the modules above registered them
