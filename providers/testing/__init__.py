"""What tests of providers stand on: a provider that plays a script, and the contract that every provider keeps."""
