"""TARTE, a foundation model for tables, as an encoder: rows become the transformer's readout.

:class:`TarteEncoder` follows :class:`fairdial.encoders.Encoder`. It needs the package tarte-ai
(``pip install '.[tarte]' -c constraints.txt`` in fairdial's folder) and three files of the model,
which it never downloads.
"""

from fairdial.tarte.encoder import TarteEncoder

__all__ = ["TarteEncoder"]
