"""AWS Bedrock's Converse API as an upstream."""
