"""Benchmarks of the engine in this process: ``python -m pydspark.bench``."""
