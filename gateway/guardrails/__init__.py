"""Checks of what goes into models and what comes out: they may change a text, or refuse it.

An interface that other packages implement (entry points of the group `llm_gateway.guardrails`); a regular expression
and an HTTP webhook are built in. Works on the canonical form, and knows neither dialects nor HTTP servers.
"""
