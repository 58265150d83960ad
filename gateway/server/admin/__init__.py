"""What only those who run the gateway may call, on a port of its own or on the main one."""
