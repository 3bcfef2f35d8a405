"""Who may do what: a token for everybody, one for observations only, and tokens with names."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairdial.errors import InvalidInputError
from fairdial.serve.entries import SERVER

OBSERVER = "FAIRDIAL_OBSERVE_TOKEN"  # environment variable of the token for observations only
SHORTEST_TOKEN = 16
SCHEME = b"bearer "
LINE = re.compile(r"([0-9a-fA-F]{64})\s+(\S.*)")
LONGEST_NAME = 100
LOOKALIKES = {"LATIN", "CYRILLIC", "GREEK"}  # alphabets with letters that look the same


@dataclass(frozen=True)
class Tokens:
    """The tokens that a server accepts.

    Attributes
    ----------
    owner : str, optional
        Allows everything, to everyone who has it.
    observer : str, optional
        Allows only sending observations.
    people : mapping
        Names by the SHA-256 of their tokens, which allow everything.
    """

    owner: str | None = None
    observer: str | None = None
    people: Mapping[str, str] = field(default_factory=dict)

    def find(self, header: str, *, to_observe: bool = False) -> tuple[bool, str | None]:
        """Return whether a request's ``Authorization`` allows an action, and the token's name."""
        given = header.encode("latin-1", "replace")
        secret = given[len(SCHEME) :].strip() if given[: len(SCHEME)].lower() == SCHEME else b""
        known = [self.owner, self.observer if to_observe else None]
        allowed = [hmac.compare_digest(secret, t.encode()) for t in known if t is not None]
        if len(secret) < SHORTEST_TOKEN:
            return False, None
        name = self.people.get(hashlib.sha256(secret).hexdigest())
        return any(allowed) or name is not None, name

    def allow(self, *, to_observe: bool = False) -> bool:
        """Return whether there is any token that allows an action."""
        return bool(self.owner or self.people or (to_observe and self.observer))


def read_tokens(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return names by the SHA-256 of their tokens, from a file with a hash and a name per line.

    Examples
    --------
    >>> import hashlib, pathlib, tempfile
    >>> from fairdial.serve.tokens import read_tokens
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tokens")
    ...     digest = hashlib.sha256(b"a-token-of-enough-letters").hexdigest()
    ...     _ = file.write_text(f"{digest}  Ann Lee\n")
    ...     list(read_tokens(file).values())
    ['Ann Lee']
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "token_file", "be a text file that can be read", given=f"{os.fspath(path)!r} ({error})"
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = LINE.fullmatch(line.strip())
        problem = None if parts else "is something else"
        if parts:
            digest = parts[1].lower()
            try:
                name = check_name(parts[2])
            except ValueError as error:
                name, problem = "", f"has a name with {error}"
            if len(name) > LONGEST_NAME or name.casefold() == SERVER:
                problem = "has a name that is too long or reserved"
            if digest in found or name in found.values():
                problem = "repeats a token or a name"
        if problem:
            raise InvalidInputError(
                "token_file",
                "hold the SHA-256 of a token (64 hexadecimal digits) and a name in each line",
                given=f"{os.fspath(path)!r}, whose line {number} {problem}",
            )
        found[digest] = name
    if not found:
        raise InvalidInputError(
            "token_file", "hold at least one token", given=f"{os.fspath(path)!r}, which holds none"
        )
    return found


def check_name(text: str) -> str:
    """Return a name in its normal form (NFKC); raise ValueError for one that looks like another.

    Examples
    --------
    >>> from fairdial.serve.tokens import check_name
    >>> check_name("Ann \N{LATIN SMALL LETTER E WITH ACUTE}")
    'Ann é'
    >>> check_name("\N{CYRILLIC SMALL LETTER DZE}erver")
    Traceback (most recent call last):
    ...
    ValueError: letters of several alphabets
    """
    normal = unicodedata.normalize("NFKC", text).strip()
    if not normal.isprintable():
        raise ValueError("characters that can't be seen")
    letters = {unicodedata.name(x, "").partition(" ")[0] for x in normal if x.isalpha()}
    if len(letters & LOOKALIKES) > 1:
        raise ValueError("letters of several alphabets")
    return normal


def find_tokens(
    name: str, environment: Mapping[str, str], *, needed: bool
) -> tuple[str | None, str | None]:
    """Return the token that changes the dial, and the one for observations only, if set."""
    token = find_token(name, environment) if needed or environment.get(name) else None
    other = find_token(OBSERVER, environment) if environment.get(OBSERVER) else None
    return token, other


def find_token(name: str, environment: Mapping[str, str]) -> str:
    """Return the token in an environment variable."""
    token = environment.get(name, "")
    if not token:
        raise InvalidInputError(
            "token_env",
            "name an environment variable that holds the token for changing the dial",
            given=f"{name}, which is not set",
            hint=(
                "Set it, for example to the output of openssl rand -hex 32.",
                "Or give each person a token with `token_file`.",
                "Or start with `read_only=True`.",
            ),
        )
    if len(token) < SHORTEST_TOKEN or not token.isascii() or token != token.strip():
        raise InvalidInputError(
            "token_env",
            f"name an environment variable that holds at least {SHORTEST_TOKEN} ASCII characters "
            "without surrounding spaces",
            given=f"{name}, whose value is different",
        )
    return token
