"""TARTE, a foundation model for tables, as an encoder.

:class:`TarteEncoder` implements :class:`fairdial.Encoder`. It needs the package tarte-ai (``pip
install '.[tarte]' -c constraints.txt`` in fairdial's folder) and three files of the model, which it
never downloads.
"""

from fairdial.paper.tarte.encoder import TarteEncoder

__all__ = ["TarteEncoder"]
