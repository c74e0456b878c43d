"""Faults made on purpose: `make faults` runs them in great number, the tests a few of each kind."""
