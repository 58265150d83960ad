"""Puts together what watches: from `telemetry:` of run.yaml to an observer, the path of the metrics, and the export."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from gateway.config.sections.section import revealed
from gateway.config.sections.telemetry import Telemetry as Section
from gateway.http.answer import Reply
from gateway.server.admin.routes import AdminTable
from gateway.server.exchange import Exchange
from gateway.server.log import Log
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series import Snapshot
from gateway.telemetry.spans import Spans
from gateway.telemetry.telemetry import Telemetry
from gateway.telemetry.texts import Texts

__all__ = ["Observed", "Snapshots"]

Snapshots = Callable[[Snapshot], Awaitable[Iterable[Snapshot]]]


class Observed:
    """`clock` gives seconds of any origin, `now` Unix seconds, `bits` a random number of so many bits.
    `metrics` are those to go on counting with; None: new ones.

    Raises ImportError where `telemetry.otlp` is set and the extra [otel] is missing.
    """

    def __init__(
        self,
        section: Section,
        log: Log,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        bits: Callable[[int], int],
        redact: Callable[[str], str],
        metrics: Metrics | None = None,
    ) -> None:
        watches = section.prometheus or section.otlp is not None
        self.metrics = (metrics or Metrics()) if watches else None
        spans = Spans(bits, now() - clock(), sample=section.sample) if section.otlp is not None else None
        texts = (lambda: Texts(redact)) if section.content == "on" else None
        self.observer = Telemetry(self.metrics, spans, texts)
        self.snapshots: Snapshots | None = None
        """What all processes on the same port counted, from what this one did; None: there is this one alone."""
        self._shows = section.prometheus
        self._otlp = None
        if section.otlp is not None and spans is not None and self.metrics is not None:
            try:
                from gateway.telemetry.otlp import Otlp
            except ImportError as error:
                raise ImportError(f"telemetry.otlp needs llm-protocol-gateway[otel]: {error}") from error

            def lost() -> None:
                log.write("telemetry_lost", {"reason": "the collector of telemetry.otlp cannot be reached"})

            self._otlp = Otlp(
                section.otlp,
                spans,
                self.metrics.snapshot,
                now=now,
                lost=lost,
                protocol=section.otlp_protocol,
                headers=revealed(section.otlp_headers),
            )

    @property
    def table(self) -> AdminTable:
        """The paths that it adds."""
        return {"/metrics": {"GET": self._show}} if self._shows else {}

    def start(self) -> None:
        if self._otlp is not None:
            self._otlp.start()

    async def aclose(self) -> None:
        if self._otlp is not None:
            await self._otlp.aclose()

    async def _show(self, exchange: Exchange) -> Reply:
        from gateway.telemetry.exposition import CONTENT_TYPE, exposition
        from gateway.telemetry.series import merged

        assert self.metrics is not None
        snapshot = self.metrics.snapshot()
        if self.snapshots is not None:
            snapshot = merged(await self.snapshots(snapshot))
        body = await asyncio.to_thread(exposition, merged([snapshot]))
        return exchange.answer(body, {"Content-Type": CONTENT_TYPE})
