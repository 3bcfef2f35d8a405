"""Read the tables that are part of the package (made by ``scripts/make_data.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import pandas as pd

from fairdial.errors import InvalidInputError


def read_table(file: str, text_columns: Sequence[str]) -> pd.DataFrame:
    """Return a table of the data folder, with text columns as sorted categories."""
    with (files(__package__) / "data" / file).open("rb") as stream:
        return pd.read_csv(
            stream,
            compression="gzip",
            dtype=dict.fromkeys(text_columns, "category"),
            na_filter=False,
        )


def sensitive_columns(sensitive: str | Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Return the columns whose values, or combinations of values, are the groups."""
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if not columns or len(set(columns)) < len(columns) or not set(columns) <= set(allowed):
        raise InvalidInputError(
            "sensitive",
            f"be one or several of {', '.join(map(repr, allowed))}",
            given=repr(sensitive),
        )
    return columns
