"""Estimators with scikit-learn's interface, one method per file."""
