"""Corpora read, split into tokens and served in columns."""
