"""The ``mm-metrics`` command."""
