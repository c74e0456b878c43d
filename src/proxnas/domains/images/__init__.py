"""Images in classes: readers of data, cell spaces, convolutional networks, their training, export
and cards."""
