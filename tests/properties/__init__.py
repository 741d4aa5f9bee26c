"""Properties of every metric and of the detection functions, for any data."""
