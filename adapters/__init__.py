"""Wire protocols to and from the canonical form, and text state machines. Pure: no I/O, no await, no torch."""
