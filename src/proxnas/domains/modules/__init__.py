"""Any nn.Module with choices, and batches of the user's own."""
