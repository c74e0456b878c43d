"""How large an architecture is and how it is kept small: R(A), costs, exact projections, limits."""
