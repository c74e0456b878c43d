"""A search as a job: options, supernet and method put together, steps, rows, result; limits,
starts, refinement. Imports every room but `workflows` and `cli`."""
