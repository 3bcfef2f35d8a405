"""The dial itself: from scores to the frontier, operating points and certificates."""
