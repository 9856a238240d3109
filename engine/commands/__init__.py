"""The subcommands of `python -m engine`, one module a stage; each is a thin call."""
