"""Parts of `bench/gpu.py`."""
