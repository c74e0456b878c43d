"""The paper over any choices: proximal operators, selection, gradients of A, the supernet. Knows no
method, no data and no task; imports `runs` and what it may import."""
