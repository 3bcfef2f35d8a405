"""The page on which anybody can turn the dial, and the server for a model."""
