"""Puts together what tells people: from `alerts:` of run.yaml to what watches, and the way to them."""

from collections.abc import Callable

from gateway.alerts.budgets import BudgetAlerts
from gateway.alerts.targets import TargetAlerts
from gateway.alerts.webhook import AlertWebhook
from gateway.config.sections.alerts import Alerts as Section
from gateway.config.sections.section import revealed

__all__ = ["Alerts"]


class Alerts:
    """`log` takes an event and its fields, `now` gives Unix seconds."""

    def __init__(
        self, section: Section, log: Callable[[str, dict[str, object]], None], *, now: Callable[[], float]
    ) -> None:
        self._webhook = AlertWebhook(section.webhook.get_secret_value(), revealed(section.headers), log, now=now)
        self.budgets = BudgetAlerts(section.budget, self._webhook.tell, now=now)
        self.targets = TargetAlerts(self._webhook.tell, now=now)

    async def aclose(self) -> None:
        """Tells what is known by now."""
        await self.budgets.aclose()
        await self._webhook.aclose()
