"""A model's card: what it decides, on which rows it was calibrated, what it can't promise."""

from __future__ import annotations

from typing import Any


def model_card(model: Any) -> str:
    """The card of a fitted estimator, as Markdown."""
    return f"# {type(model).__name__}\n"
