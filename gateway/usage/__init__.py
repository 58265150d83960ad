"""What requests used and what it cost: prices, estimates where an upstream is silent, and the rows that are kept."""
