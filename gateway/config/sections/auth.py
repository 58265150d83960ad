"""`auth:`: who may call, which models, and how much."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.config.sections.section import Amount, FrozenMap, HttpUrl, Name, Positive, Secret, Section, Text, empty_map

__all__ = [
    "Account",
    "Auth",
    "Budget",
    "ClientAccount",
    "Jwt",
    "Key",
    "Limits",
    "ModelLimits",
    "Period",
    "SigningAlgorithm",
    "UserLimits",
]

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


class UserLimits(Section):
    limits: Limits | None = Field(default=None, description="Rates of each user.")
    budget: Budget | None = Field(default=None, description="Spending of each user.")


class Account(Section):
    """What somebody may use: a key, a team of keys, each client with a signed token."""

    models: tuple[Text, ...] = Field(
        default=("*",), description='Names that may be asked for; "*" stands for any text. Targets need no entry.'
    )
    limits: Limits | None = Field(default=None, description="Rates.")
    budget: Budget | None = Field(default=None, description="Spending.")
    per_model: FrozenMap[ModelLimits] = Field(
        default_factory=empty_map, description='What may be used of single models, by name; "*" stands for any text.'
    )
    per_user: UserLimits | None = Field(
        default=None,
        description="What each end user may use, as the header x-gateway-user names him, or 'user' in the body.",
    )
    metadata: FrozenMap[Text] = Field(
        default_factory=empty_map, description="What targets may ask for under 'when.key'; a key's own goes first."
    )

    @property
    def is_limited(self) -> bool:
        return any((self.limits, self.budget, self.per_model, self.per_user))


class ClientAccount(Account):
    """That of a client, which may share the account of a team."""

    team: Name | None = Field(default=None, description="One of 'teams', whose models and limits hold as well.")


class Key(ClientAccount):
    id: Name = Field(description="Name of the key, as it stands in logs.")
    secret: Secret = Field(description='What the client sends as its key; give it as "${NAME}".')
    admin: bool = Field(default=False, description="May it call the admin routes?")


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Jwt(ClientAccount):
    issuer: HttpUrl = Field(description="Who signs the tokens.")
    audience: Annotated[
        tuple[Text, ...], Field(min_length=1), BeforeValidator(_listed, json_schema_input_type=Text | tuple[Text, ...])
    ] = Field(description="Whom the tokens are for: a text, or a list of which a token has to name one.")
    jwks_url: HttpUrl | None = Field(
        default=None, description="Where the signing keys are; default: what the issuer's OpenID configuration names."
    )
    algorithms: tuple[SigningAlgorithm, ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="Signatures that are taken."
    )
    leeway_s: Amount = Field(default=30, le=600, description="Seconds that clocks may differ.")
    id_claim: Text = Field(default="sub", description="The claim that names the client, as it stands in logs.")
    team_claim: Text | None = Field(
        default=None,
        description="The claim that names the client's teams; the first one of 'teams' among them is its team. Without "
        "any it belongs to 'team', or is refused where that is missing.",
    )
    models_claim: Text | None = Field(
        default=None,
        description="The claim that lists what the client may ask for, in place of 'models'; without it, nothing.",
    )


class Auth(Section):
    keys: tuple[Key, ...] = Field(default=(), description="Keys of clients.")
    teams: FrozenMap[Account] = Field(
        default_factory=empty_map, description="What keys may use together, by the name that they give as 'team'."
    )
    jwt: Jwt | None = Field(default=None, description="Accept signed tokens.")
    pass_through: bool = Field(default=False, description="The client's key goes to the provider.")
    hash_secret: Secret | None = Field(
        default=None, description="Keys the hashes under which keys made at run time are stored."
    )

    @property
    def asks(self) -> bool:
        """Whether a client has to show anything."""
        return bool(self.keys) or self.jwt is not None or self.pass_through or self.hash_secret is not None
