"""The sub-commands of ``fpsim``: each module has `HELP`, ``add_arguments(parser)`` and ``run(arguments) -> int``."""
