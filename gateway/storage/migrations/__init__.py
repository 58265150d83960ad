"""The database's versions, in order. `gateway migrate` runs them."""
