"""Models with random weights and the widths of real ones, for ``tools/make_bench_model.py``."""
