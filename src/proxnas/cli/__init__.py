"""A file a command: words become options, results go to the screen. Each parses its flags without
torch, then imports what it needs, from any room."""
