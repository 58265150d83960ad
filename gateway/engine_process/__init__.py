"""A provider in a process of its own, for several processes that serve: plain messages over a local socket.

`host` runs beside the provider, `proxy` stands for it elsewhere; neither knows what kind of provider it is.
"""
