"""Fused kernels for CPUs: a whole step of a decoder in one call of C++, over weights as their files have them."""
