"""Detection: overlapping pairs, matching, average precision and error types."""
