"""Data sets to try things on.

Two tables of the study are embedded, its two sets of pictures are read from your own copies, and
there is a law whose best trade-off is known.
"""

from fairdial.datasets.adult import load_adult
from fairdial.datasets.base import Dataset
from fairdial.datasets.celeba import load_celeba
from fairdial.datasets.compas import load_compas
from fairdial.datasets.pictures import Pictures
from fairdial.datasets.synthetic import GaussianLaw, make_gaussian
from fairdial.datasets.utkface import load_utkface

__all__ = [
    "Dataset",
    "GaussianLaw",
    "Pictures",
    "load_adult",
    "load_celeba",
    "load_compas",
    "load_utkface",
    "make_gaussian",
]
