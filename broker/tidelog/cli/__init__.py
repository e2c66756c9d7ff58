"""Command line: one file per group of commands."""
