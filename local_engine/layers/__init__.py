"""The operations of a decoder, one a file, each with its reference implementation in plain torch.

`ops.Ops` is the seam: a model calls the operations it was built with, and fused kernels are another row of Ops.
"""
