"""The sections of run.yaml as pydantic models: names, types, defaults and ranges, one module a section.

What spans sections is in `gateway.config.cross_checks`.
"""
