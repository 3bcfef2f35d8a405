"""What the gap of an operating point says: counted on known groups, or estimated."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Promise(NamedTuple):
    """What is known of the groups behind a point's gap, and so what the gap is.

    Attributes
    ----------
    gap : {"counted", "estimated"}
        "counted": ``point.gap`` is exact on the calibration rows whose group is known. "estimated":
        no group is known, and the gap is expected from the probabilities of the groups.
    known, unknown : float
        Number of calibration rows, or the sum of their weights, whose group is known, and isn't.
    estimate : float or None
        Estimated gap on all rows: those without a known group count for each group with its
        probability. As good as the probabilities; None if every group is known, or for points that
        ``confidence`` found.
    """

    gap: Literal["counted", "estimated"]
    known: float
    unknown: float
    estimate: float | None
