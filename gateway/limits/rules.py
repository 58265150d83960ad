"""What somebody may use, apart from whom it holds for."""

from dataclasses import dataclass

from gateway.config.sections.auth import Budget as BudgetSection
from gateway.config.sections.auth import Limits
from gateway.limits.scope import NANO, Budget, Scope

__all__ = ["NO_RULES", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """None: no limit."""

    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    budget: Budget | None = None

    @staticmethod
    def of(limits: Limits | None, budget: BudgetSection | None) -> "Rules":
        """As run.yaml says it."""
        limits = limits or Limits()
        money = None if budget is None else Budget(round(budget.usd * NANO), budget.per)
        return Rules(limits.rpm, limits.tpm, limits.parallel, money)

    def scope(
        self,
        name: str,
        label: str,
        *,
        key: str | None = None,
        team: str | None = None,
        user: str | None = None,
        model: str | None = None,
    ) -> Scope | None:
        """None where nothing is limited. See `Scope` for the names."""
        if self == NO_RULES:
            return None
        return Scope(
            name=name,
            label=label,
            key=key,
            team=team,
            user=user,
            model=model,
            rpm=self.rpm,
            tpm=self.tpm,
            parallel=self.parallel,
            budget=self.budget,
        )


NO_RULES = Rules()
