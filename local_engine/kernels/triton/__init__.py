"""Fused kernels in Triton for NVIDIA GPUs, one operation a file: the kernel, its launcher and its twin in plain torch.

A launcher checks shapes, allocates what it gives and launches on the current stream without waiting. A twin computes
the same in float32 and rounds once: the difference that each file states is what the tests allow. Kernels know tensors
and nothing of models, batches or requests. Importing a module here needs the package `triton`.
"""
