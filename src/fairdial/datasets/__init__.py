"""Tables to try things on: two of the study, embedded, and a law whose best trade-off is known."""

from fairdial.datasets.adult import load_adult
from fairdial.datasets.base import Dataset
from fairdial.datasets.compas import load_compas
from fairdial.datasets.pictures import Pictures
from fairdial.datasets.synthetic import GaussianLaw, make_gaussian

__all__ = ["Dataset", "GaussianLaw", "Pictures", "load_adult", "load_compas", "make_gaussian"]
