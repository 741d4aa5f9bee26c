"""What is remembered between batches."""
