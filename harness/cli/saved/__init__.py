"""Commands on what a run, or an exploration, has left: its logs on one time line, its history, its replay."""
