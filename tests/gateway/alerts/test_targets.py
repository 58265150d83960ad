"""A target that fails is told of once an hour."""

from gateway.alerts.alert import Alert
from gateway.alerts.targets import TargetAlerts
from gateway.routing.breaker import BreakerRules
from gateway.routing.health import TargetHealth
from gateway.routing.route import Target
from providers.testing.scripted import ScriptedProvider


def test_a_target_is_told_of_once_an_hour_and_each_for_itself() -> None:
    told: list[Alert] = []
    times = [0.0]
    alerts = TargetAlerts(told.append, now=lambda: times[0])
    provider = ScriptedProvider("up")
    one, other = (TargetHealth(Target(provider, model), BreakerRules()) for model in ("m", "n"))
    for at, record in ((0.0, one), (15.0, one), (20.0, other), (3599.0, one), (3600.0, one)):
        times[0] = at
        alerts.opened(record)
    assert [alert.id for alert in told] == ["target_down:up/m:0", "target_down:up/n:20", "target_down:up/m:3600"]
    assert told[0].text == "up/m fails, and is passed over until it answers"
    assert told[0].fields == {"provider": "up", "model": "m"}


def test_a_provider_that_is_not_there_is_told_of() -> None:
    told: list[Alert] = []
    alerts = TargetAlerts(told.append, now=lambda: 5.0)
    alerts.gone("up")
    alerts.gone("up")
    (alert,) = told
    assert (alert.event, alert.text) == ("provider_unreachable", "up cannot be reached")
