"""What the training of any network is made of: averages, optimizers, protocols, schedules. Knows
neither images nor text; imports the rooms up to `methods`."""
