"""Who a client is: keys of run.yaml, keys made at run time, and signed tokens."""
