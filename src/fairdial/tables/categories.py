"""Text columns as categories, for boosting libraries."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from fairdial._validation import check_choice
from fairdial.tables.columns import (
    FREQUENT,
    Value,
    as_table,
    column_names,
    find_columns,
    keep_names,
)
from fairdial.tables.inputs import MOST_CODES, Code, Number, OneHot
from fairdial.tables.plan import Categorical


class CategoryEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn text columns into pandas' categories, or into indicators, and the others into floats.

    A category is a value that at least ten training rows have, at most 254 per column. All other
    values count as missing (NaN), so that boosted trees never meet a category that they don't know.

    Parameters
    ----------
    output : {"category", "one_hot"}
        Categories, which LightGBM and XGBoost split by sets, or a feature for each category.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial.tables.categories import CategoryEncoder
    >>> X = pd.DataFrame({"job": ["cook"] * 12 + ["nurse"] * 10 + ["Ann Smith"]})
    >>> encoder = CategoryEncoder().fit(X)
    >>> encoder.transform(X.iloc[[0, 12, 22]])["job"].tolist()
    ['cook', 'nurse', nan]
    """

    def __init__(self, output: Literal["category", "one_hot"] = "category") -> None:
        self.output = output

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the frequent values of columns that aren't numbers."""
        check_choice(self.output, "output", ("category", "one_hot"))
        table = pd.DataFrame(as_table(X, self))
        self.named_ = isinstance(X, pd.DataFrame)
        names = column_names(X if self.named_ else table.to_numpy())
        keep_names(self, names, named=self.named_)
        self.blocks_ = tuple(
            Number(name)
            if pd.api.types.is_numeric_dtype(table.dtypes.iloc[i])
            else self._block(name, table.iloc[:, i])
            for i, name in enumerate(names)
        )
        return self

    def _block(self, name: Value, column: pd.Series) -> Code | OneHot:
        known = Categorical.fit(name, column, FREQUENT, MOST_CODES).categories
        if self.output == "one_hot":
            return OneHot(name, known)
        return Code(name, known, tuple(map(float, range(len(known)))))

    def transform(self, X: Any) -> pd.DataFrame:
        """Return the columns as categories (or indicators) and floats."""
        table = as_table(X, self)
        places = find_columns(
            table, [block.name for block in self.blocks_], self, named=self.named_
        )
        found: dict[str, Any] = {}
        for block, place in zip(self.blocks_, places, strict=True):
            column = pd.DataFrame(table).iloc[:, place]
            values = np.zeros((len(column), block.width))
            block.write_column(column, values)
            if isinstance(block, OneHot):
                names = [f"{block.name}={value}" for value in block.categories]
                found |= {name: values[:, i] for i, name in enumerate(names)}
            elif isinstance(block, Code):
                codes = np.where(np.isnan(values[:, 0]), -1.0, values[:, 0]).astype(np.intp)
                found[str(block.name)] = pd.Categorical.from_codes(codes, _names(block))
            else:
                found[str(block.name)] = values[:, 0]
        return pd.DataFrame(found, index=getattr(X, "index", None))

    def get_feature_names_out(self, input_features: Any = None) -> Any:  # noqa: ARG002
        """Return the names of the columns after encoding."""
        names: list[str] = []
        for block in self.blocks_:
            if isinstance(block, OneHot):
                names += [f"{block.name}={value}" for value in block.categories]
            else:
                names.append(str(block.name))
        return np.array(names, dtype=object)


def _names(block: Code) -> list[Any]:
    """Return names of the categories: the codes, unless all are text that XGBoost can store."""
    known = block.categories
    plain = all(isinstance(value, str) and value.isascii() for value in known)
    return list(known) if plain else list(range(len(known)))
