"""The dial for everybody: the page, as one file that works offline or behind the model server."""
