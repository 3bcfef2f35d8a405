"""Saved models: a folder of plain files, checked by hash before anything is read."""
