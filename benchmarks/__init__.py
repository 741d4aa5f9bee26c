"""Side-by-side measurements with the peers; ``make bench`` or ``python -m benchmarks [name ...]``."""
