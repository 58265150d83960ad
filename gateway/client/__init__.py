"""The Python SDK: OpenAI's client, pointed at a gateway or holding one inside. Importing it imports openai."""

from gateway.client.clients import AsyncGateway, Gateway

__all__ = ["AsyncGateway", "Gateway"]
