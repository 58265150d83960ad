"""Fused kernels: implementations of an executor, or of single operations, for one kind of device each."""
