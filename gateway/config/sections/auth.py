"""`auth:`: who may call, which models, and how much."""

from typing import Literal

from pydantic import Field

from gateway.config.sections.section import Amount, FrozenMap, HttpUrl, Name, Positive, Secret, Section, Text, empty_map

__all__ = ["Auth", "Budget", "Jwt", "Key", "Limits", "ModelLimits", "Period", "SigningAlgorithm"]

SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Those with a public key alone: who can check a signature must not be able to make one."""

Period = Literal["hour", "day", "week", "month", "ever"]


class Limits(Section):
    rpm: Positive | None = Field(default=None, description="Requests a minute.")
    tpm: Positive | None = Field(default=None, description="Tokens a minute.")
    parallel: Positive | None = Field(default=None, description="Requests at the same time.")


class Budget(Section):
    usd: float = Field(gt=0, description="Dollars that may be spent in one period.")
    per: Period = Field(default="day", description="The period; ever: no new one begins.")


class ModelLimits(Section):
    limits: Limits | None = Field(default=None, description="Rates for this model.")
    budget: Budget | None = Field(default=None, description="Spending on this model.")


class Key(Section):
    id: Name = Field(description="Name of the key, as it stands in logs.")
    secret: Secret = Field(description='What the client sends as its key; give it as "${NAME}".')
    models: tuple[Text, ...] = Field(
        default=("*",), description='Names that the client may ask for; "*" stands for any text. Targets need no entry.'
    )
    admin: bool = Field(default=False, description="May it call the admin routes?")
    limits: Limits | None = Field(default=None, description="Rates of this key.")
    budget: Budget | None = Field(default=None, description="Spending of this key.")
    per_model: FrozenMap[ModelLimits] = Field(
        default_factory=empty_map,
        description='What this key may use of single models, by name; "*" stands for any text.',
    )


class Jwt(Section):
    issuer: HttpUrl = Field(description="Who signs the tokens.")
    audience: Text = Field(description="Whom the tokens are for.")
    jwks_url: HttpUrl | None = Field(
        default=None, description="Where the signing keys are; default: what the issuer's OpenID configuration names."
    )
    algorithms: tuple[SigningAlgorithm, ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="Signatures that are taken."
    )
    leeway_s: Amount = Field(default=30, le=600, description="Seconds that clocks may differ.")
    id_claim: Text = Field(default="sub", description="The claim that names the client, as it stands in logs.")
    models: tuple[Text, ...] = Field(default=("*",), description="Names that these clients may ask for.")
    limits: Limits | None = Field(default=None, description="Rates of each client.")
    budget: Budget | None = Field(default=None, description="Spending of each client.")


class Auth(Section):
    keys: tuple[Key, ...] = Field(default=(), description="Keys of clients.")
    jwt: Jwt | None = Field(default=None, description="Accept signed tokens.")
    pass_through: bool = Field(default=False, description="The client's key goes to the provider.")
    hash_secret: Secret | None = Field(
        default=None, description="Keys the hashes under which keys made at run time are stored."
    )

    @property
    def asks(self) -> bool:
        """Whether a client has to show anything."""
        return bool(self.keys) or self.jwt is not None or self.pass_through or self.hash_secret is not None
