"""SQL dialects: how each of them writes names, text, numbers and tests for NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairdial.errors import InvalidInputError


@dataclass(frozen=True)
class Dialect:
    """How a database writes what we need.

    Attributes
    ----------
    name : str
        What users call it.
    quote : str
        The character around names; it is doubled inside them.
    escapes : bool
        Whether text has backslash escapes; otherwise a quote is doubled.
    double : str
        The type of numbers in double precision.
    is_nan : str
        A test of ``{x}``, a number in double precision; empty where there is no NaN.
    exact_casts : bool
        Whether ``CAST('0.1' AS double)`` gives the nearest number.
    type_of : str
        The name of the type of ``{x}``; empty if all fractional numbers have double precision.
    single : str
        What ``type_of`` calls single precision.
    """

    name: str
    quote: str = '"'
    escapes: bool = False
    double: str = "DOUBLE"
    is_nan: str = "isnan({x})"
    exact_casts: bool = True
    type_of: str = ""
    single: str = ""

    def column(self, name: str, argument: str) -> str:
        """Return a column's name, quoted; an error names the argument that it comes from."""
        if self.quote == "`" and ("`" in name or "\\" in name):  # escapes differ by database
            raise InvalidInputError(
                argument, f"have no backtick and no backslash in {self.name}", given=repr(name)
            )
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        """Return text, quoted."""
        if self.escapes:
            value = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        else:
            value = value.replace("'", "''")
        return f"'{value}'"

    def number(self, value: float) -> str:
        """Return a number in double precision, exact to the last bit."""
        if self.exact_casts:
            return f"CAST('{value!r}' AS {self.double})"
        if math.isinf(value):
            return "9e999" if value > 0 else "-9e999"
        mantissa, exponent = math.frexp(value)
        top, power = int(mantissa * 2**53), exponent - 53  # value = top * 2^power
        while top and top % 2 == 0:
            top, power = top // 2, power + 1
        sign = "*" if power > 0 else "/"
        parts = [62] * (abs(power) // 62) + [abs(power) % 62]  # powers that are spelled exactly
        factors = "".join(f" {sign} {2**part}.0" for part in parts if part)
        return f"({top}.0{factors} /* {value!r} */)"

    def is_missing(self, value: str) -> str:
        """Return a test for NULL and NaN of an expression in double precision."""
        null = f"{value} IS NULL"
        return f"{null} OR {self.is_nan.format(x=value)}" if self.is_nan else null


_NAN = "{x} = CAST('NaN' AS DOUBLE PRECISION)"  # there, NaN equals itself
DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("duckdb", type_of="typeof({x})", single="FLOAT"),
        Dialect("sqlite", double="REAL", is_nan="", exact_casts=False),
        Dialect(
            "postgres",
            double="DOUBLE PRECISION",
            is_nan=_NAN,
            type_of="CAST(pg_typeof({x}) AS TEXT)",
            single="real",
        ),
        Dialect("spark", quote="`", escapes=True, type_of="typeof({x})", single="float"),
        Dialect("bigquery", quote="`", escapes=True, double="FLOAT64", is_nan="IS_NAN({x})"),
        Dialect("snowflake", escapes=True, double="DOUBLE PRECISION", is_nan=_NAN),
    )
}
