"""One method a file: scorers and frontiers behind scikit-learn's interface."""
