"""What is known about models by their names: data files a family, and what reads them."""
