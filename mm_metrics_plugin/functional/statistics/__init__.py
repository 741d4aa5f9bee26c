"""Confidence intervals and paired tests; images are the sampling unit."""
