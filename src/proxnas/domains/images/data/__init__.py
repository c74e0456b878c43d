"""Data sets of many kinds, and streams of batches that are resumable and the same on every
device."""
