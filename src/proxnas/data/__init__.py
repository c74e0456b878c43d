"""Data sets, and streams of batches that are resumable and resident on the device."""
