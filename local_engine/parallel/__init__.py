"""One model on several devices of one machine: a process a device, each with its share of weights and KV cache."""
