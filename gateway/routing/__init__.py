"""Which target answers a request: names, requirements, tries and failover. Knows no HTTP and no dialect."""
