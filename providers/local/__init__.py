"""The bundled engine as a provider: model files, tokenizer, chat template and text around local_engine."""
