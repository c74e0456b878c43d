"""Many jobs side by side: processes on this machine, or tasks of a Ray cluster."""
