"""What differs between images, text and modules of the user: data, spaces, networks, losses and
figures, export. Each is a folder; the folders do not import each other, and all may import the
rooms up to `training`."""
