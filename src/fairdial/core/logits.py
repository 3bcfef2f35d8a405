"""Probabilities as log-odds, the scale of thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Floats
from fairdial._special import logit
from fairdial._validation import check_scores
from fairdial.errors import InvalidInputError


def proba_to_logits(probabilities: ArrayLike, name: str = "probabilities") -> Floats:
    """Return the log-odds of probabilities; 0 and 1 become infinite.

    Examples
    --------
    >>> from fairdial import proba_to_logits
    >>> proba_to_logits([0.5, 0.75]).round(4)
    array([0.    , 1.0986])
    """
    array = check_scores(probabilities, name).astype(np.float64)
    if array.min() < 0 or array.max() > 1:
        bad = array[(array < 0) | (array > 1)][0]
        raise InvalidInputError(name, "be in [0, 1]", given=f"{bad:g}")
    return np.asarray(logit(array), np.float64)
