"""What is told about requests: metrics for Prometheus and OpenTelemetry, and traces. Never a prompt, unless asked to.

Knows exchanges and attempts; decides nothing about them. OpenTelemetry is imported only where `telemetry.otlp` is set.
"""
