"""`auth:`: who may call, which models, and how much."""

from typing import Literal

from pydantic import Field

from gateway.config.sections.section import HttpUrl, Name, Positive, Secret, Section, Text

__all__ = ["Auth", "Budget", "Jwt", "Key", "Limits"]


class Limits(Section):
    rpm: Positive | None = Field(default=None, description="Requests a minute.")
    tpm: Positive | None = Field(default=None, description="Tokens a minute.")
    parallel: Positive | None = Field(default=None, description="Requests at the same time.")


class Budget(Section):
    usd: float = Field(gt=0, description="Dollars that may be spent in one period.")
    per: Literal["hour", "day", "week", "month"] = Field(default="day", description="The period.")


class Key(Section):
    id: Name = Field(description="Name of the key, as it stands in logs.")
    secret: Secret = Field(description='What the client sends as its key; give it as "${NAME}".')
    models: tuple[Text, ...] = Field(
        default=("*",), description='Names that the client may ask for; "*" stands for any text. Targets need no entry.'
    )
    admin: bool = Field(default=False, description="May it call the admin routes?")
    limits: Limits | None = Field(default=None, description="Rates of this key.")
    budget: Budget | None = Field(default=None, description="Spending of this key.")


class Jwt(Section):
    issuer: HttpUrl = Field(description="Who signs the tokens.")
    audience: Text = Field(description="Whom the tokens are for.")


class Auth(Section):
    keys: tuple[Key, ...] = Field(default=(), description="Keys of clients.")
    jwt: Jwt | None = Field(default=None, description="Accept signed tokens.")
    pass_through: bool = Field(default=False, description="The client's key goes to the provider.")
    hash_secret: Secret | None = Field(default=None, description="Pepper for the stored hashes of keys.")

    @property
    def asks(self) -> bool:
        """Whether a client has to show anything."""
        return bool(self.keys) or self.jwt is not None or self.pass_through
