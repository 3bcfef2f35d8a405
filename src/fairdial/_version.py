"""The version of the package; pyproject.toml reads it too."""

__version__ = "0.3.0"
