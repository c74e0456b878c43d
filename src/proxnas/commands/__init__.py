"""The commands: each parses its flags without torch, then imports what it needs."""
