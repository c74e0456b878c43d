"""Several jobs for one purpose: fit, compare, sweep, bench, plans. Imports every room but `cli`."""
