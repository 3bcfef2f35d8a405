"""Reading the tables that come with the package (made by ``scripts/make_data.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import pandas as pd

from fairdial.errors import InvalidInputError


def read_table(file: str, text_columns: Sequence[str]) -> pd.DataFrame:
    """A table of the data folder; text columns are categories, sorted, and nothing is missing."""
    with (files(__package__) / "data" / file).open("rb") as stream:
        return pd.read_csv(
            stream,
            compression="gzip",
            dtype=dict.fromkeys(text_columns, "category"),
            na_filter=False,
        )


def sensitive_columns(sensitive: str | Sequence[str], allowed: Sequence[str]) -> list[str]:
    """The columns whose values, or combinations of values, are the groups."""
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if not columns or len(set(columns)) < len(columns) or not set(columns) <= set(allowed):
        raise InvalidInputError(
            f"`sensitive` must be one or several of {', '.join(map(repr, allowed))}; "
            f"got {sensitive!r}."
        )
    return columns
