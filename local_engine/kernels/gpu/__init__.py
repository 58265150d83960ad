"""A decoder's step on a GPU: its layers over fused kernels, the paged cache, CUDA graphs, and steps that run ahead."""
