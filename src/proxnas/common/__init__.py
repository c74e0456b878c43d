"""Errors, types, files, clocks, quantities: what every room needs. Imports nothing else of the
package, and no torch unless a function is about tensors."""
