"""Files that somebody else wrote, read safely."""
