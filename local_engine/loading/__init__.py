"""Model files to weights: GGUF and safetensors. Files are untrusted; a bad one is a ModelLoadError, never a crash."""
