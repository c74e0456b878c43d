"""What differs between images, text and modules of the user: data, spaces, networks, losses and figures, export, each in
a folder of its own. The folders do not import each other; all may import the rooms up to `training`."""
