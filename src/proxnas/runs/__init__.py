"""One job, in one process or many: its folder, checkpoints, loop, messages, progress and loggers.
Knows neither methods nor data; imports `common`, `cells` and `report`."""
