"""Search spaces of convolutional cells."""
