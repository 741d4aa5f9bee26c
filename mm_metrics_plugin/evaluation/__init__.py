"""From files or arrays to report objects."""
