"""A client, by whichever key it came in, and what it may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.config.sections.auth import Account as AccountSection
from gateway.config.sections.auth import Auth
from gateway.globs import matches
from gateway.limits.rules import NO_RULES, Rules

__all__ = ["Account", "ClientKey", "Team", "teams_of"]


@dataclass(frozen=True, slots=True)
class Account:
    """What somebody may use: a client, or a team of clients. In `models` and in the names of `per_model`, `*` stands
    for any text."""

    models: tuple[str, ...] = ("*",)
    rules: Rules = NO_RULES
    per_model: tuple[tuple[str, Rules], ...] = ()
    """Rules for single models, beside `rules`."""
    per_user: Rules = NO_RULES
    """Rules for each end user, beside the others."""
    metadata: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(section: AccountSection) -> "Account":
        """As run.yaml says it."""
        per_model = [(name, Rules.of(each.limits, each.budget)) for name, each in section.per_model.items()]
        user = section.per_user
        per_user = NO_RULES if user is None else Rules.of(user.limits, user.budget)
        return Account(
            tuple(section.models),
            Rules.of(section.limits, section.budget),
            tuple(per_model),
            per_user,
            tuple(section.metadata.items()),
        )

    def may_use(self, names: Sequence[str]) -> bool:
        """Whether one of the names of a model is on the list."""
        return "*" in self.models or any(matches(self.models, name) for name in names)

    @property
    def may_use_all(self) -> bool:
        return "*" in self.models


@dataclass(frozen=True, slots=True)
class Team:
    """Clients that share an account."""

    id: str
    account: Account


def teams_of(auth: Auth | None) -> Mapping[str, Team]:
    """Those of run.yaml, by their names."""
    return {} if auth is None else {name: Team(name, Account.of(section)) for name, section in auth.teams.items()}


@dataclass(frozen=True, slots=True)
class ClientKey:
    """Its own account and that of its team both hold."""

    id: str
    account: Account = Account()
    team: Team | None = None
    admin: bool = False
    """Whether it opens the admin routes."""
    upstream_key: str | None = None
    """The client's own key, which goes to the provider in place of the configured one."""
    is_blocked: bool = False
    """It lets nobody in for the time being."""
    metadata: Mapping[str, str] = field(init=False, compare=False)
    """Its own and its team's, with `id` and `team`."""

    def __post_init__(self) -> None:
        named = {"id": self.id}
        team: tuple[tuple[str, str], ...] = ()
        if self.team is not None:
            named["team"], team = self.team.id, self.team.account.metadata
        object.__setattr__(self, "metadata", {**dict(team), **dict(self.account.metadata), **named})

    def may_use(self, *names: str) -> bool:
        """Whether it may use the model that has these names."""
        return self.account.may_use(names) and (self.team is None or self.team.account.may_use(names))

    @property
    def may_use_all(self) -> bool:
        """Whether it may use every model there is."""
        return self.account.may_use_all and (self.team is None or self.team.account.may_use_all)
