"""The bundled inference engine: token ids in, token ids and log-probabilities out.

Owns model weights, the KV cache, scheduling and sampling. Knows no text, no HTTP and no canonical types; it is the
only package that imports torch. What crosses its border are the frozen dataclasses of `local_engine.generation` and
`local_engine.sampling`, which import no torch.
"""
