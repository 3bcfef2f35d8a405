"""Errors are objects: they carry what is wrong, and survive the way between processes."""

from __future__ import annotations

import pickle

import pytest

from fairdial.errors import (
    CannotCertifyError,
    FairdialError,
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
    SmallGroupError,
    UnknownGroupError,
)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("k", "be positive", given=0, hint=("Set `k`.", "Or `n=2`.")),
        UnknownGroupError("groups", "be known", given="'c'", groups=["c"]),
        SmallGroupError("min_count", "be smaller", groups=["a", 1]),
        CannotCertifyError("too few rows", smallest_tolerance=0.1, rows_needed=9),
        ModelFileError("a file is missing"),
        MissingExtraError("networks need torch"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_pickled_error_is_the_same(error: FairdialError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert getattr(again, "msg", None) == getattr(error, "msg", None)


@pytest.mark.parametrize("kind", [UnknownGroupError, SmallGroupError])
def test_an_error_about_groups_says_what_is_allowed(kind: type[InvalidInputError]) -> None:
    with pytest.raises(TypeError, match="allowed"):
        kind("groups")  # type: ignore[call-arg]
