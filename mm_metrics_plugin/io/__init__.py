"""Files that somebody else wrote: read without running anything in them, checked, and laid out as arrays."""
