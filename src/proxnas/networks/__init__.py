"""Discrete networks from a Genotype, and the stacks of cells that search networks share with them."""
