"""Turn tables into features."""
