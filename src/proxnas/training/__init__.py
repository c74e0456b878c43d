"""What the training of a discrete network is made of."""
