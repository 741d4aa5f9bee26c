"""Results into things people read. Nothing is computed here."""
