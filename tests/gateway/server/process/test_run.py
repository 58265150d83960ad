"""The process: it binds first, says clearly why it can't start, and stops in order."""

import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gateway.cli import main
from tests.certificates import certificate
from tests.gateway.server.process.served import ROOT, SERVE, children, holding, serving, until_serving


def test_it_answers_and_a_signal_ends_it_with_status_zero(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, address):
        assert httpx.get(f"http://{address}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_it_may_have_as_many_sockets_as_the_system_allows(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        with serving(tmp_path) as (process, _):
            limits = Path(f"/proc/{process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == [str(before[1])] * 2


async def test_a_request_that_runs_when_it_is_told_to_stop_is_answered(tmp_path: Path) -> None:
    async with holding(tmp_path) as held:
        held.signal(signal.SIGTERM)
        held.let_go()
        assert "late" in (await held.answer).text
        assert await held.ended() == 0


def test_a_provider_that_cannot_be_reached_at_the_start_is_a_warning_and_an_open_breaker(tmp_path: Path) -> None:
    extra = "models: {fast: up/m}\ntelemetry: {prometheus: true}\n"
    with serving(tmp_path, upstream_port=9, extra=extra) as (process, address):
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())
        assert (told["event"], told["provider"]) == ("provider_unreachable", "up")
        states = [line for line in httpx.get(f"http://{address}/metrics").text.splitlines() if "breaker_state{" in line]
        assert len(states) == 1
        assert 'gateway_breaker_state="open"' in states[0]


async def test_what_outlives_the_drain_is_told_and_cut(tmp_path: Path) -> None:
    async with holding(tmp_path, ", drain_s: 0.1") as held:
        held.signal(signal.SIGINT)
        assert (await held.answer).status_code == 503
        assert await held.ended() == 0
        assert held.process.stderr is not None
        said = held.process.stderr.read()
        assert "gateway: stopping: waits up to 0.1 s for 1 request; a second signal ends" in said


async def test_requests_finish_though_nobody_hears_what_it_says_any_more(tmp_path: Path) -> None:
    async with holding(tmp_path) as held:
        assert held.process.stderr is not None
        held.process.stderr.close()
        held.signal(signal.SIGTERM)
        await held.closed()
        held.let_go()
        assert (await held.answer).status_code == 200
        assert await held.ended() == 0
        held.process.stderr = None


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with holding(tmp_path) as held:
        held.signal(signal.SIGTERM)
        await held.closed()
        began = time.monotonic()
        held.signal(signal.SIGTERM)
        assert await held.ended() == 130
        assert time.monotonic() - began < 5
        with pytest.raises(httpx.HTTPError):
            await held.answer


async def test_ctrl_c_in_a_terminal_which_tells_every_process_lets_requests_finish(tmp_path: Path) -> None:
    async with holding(tmp_path, ", workers: 2") as held:
        os.killpg(held.process.pid, signal.SIGINT)
        await held.closed()
        held.let_go()
        assert "late" in (await held.answer).text
        assert await held.ended() == 0


AND_A_THREAD = """\
import asyncio, sys, threading
from gateway.config import parse_config
from gateway.server.process import run
async def leaves_a_thread():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return 0
run._guarded(parse_config("version: 1", {}, provider_types=[]), "run.yaml", leaves_a_thread)
"""


def test_a_thread_that_waits_for_ever_as_one_that_looks_up_a_name_does_not_hold_the_end_up() -> None:
    ended = subprocess.run([sys.executable, "-c", AND_A_THREAD], capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")


ENGINE_AND_SERVER = """\
import os, select, signal, sys
from gateway.server.process.workers import Workers
engine_lives, held_by_engine = os.pipe()
def engine(siblings, ready):
    ready()
    signal.pause()
def server(siblings, ready):
    os.close(held_by_engine)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ready()
    signal.sigwait({signal.SIGTERM})
    ended, _, _ = select.select([engine_lives], [], [], 0.5)
    print("the engine has ended" if ended else "the engine lives", flush=True)
    return 0
def all_ready():
    os.close(held_by_engine)
    print("ready", flush=True)
sys.exit(Workers(1, all_ready, engine).run(server))
"""


def test_the_engine_outlives_the_processes_whose_requests_need_it() -> None:
    command = [sys.executable, "-c", ENGINE_AND_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "the engine lives\n"
        assert process.wait(10) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_in_use_is_one_clear_line(tmp_path: Path, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=workers > 1) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "run.yaml"
        config.write_text(
            f"version: 1\nserver: {{port: {port}, workers: {workers}}}\n"
            "providers: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
        )
        command = [sys.executable, "-c", SERVE, str(config)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 1
    assert done.stderr == f"gateway: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_wrong_default_of_an_alias_is_one_clear_line(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "version: 1\nserver: {port: 0}\nproviders: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
        "models: {fast: {targets: [up/m], defaults: {max_tokns: 5}}}\n"
    )
    command = [sys.executable, "-c", SERVE, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 1
    why = "models.fast.defaults.max_tokns: no such field of a request, did you mean 'max_tokens'?"
    assert done.stderr == f"gateway: {config}: {why}\n"


def test_the_server_is_imported_without_torch_openai_and_sqlalchemy() -> None:
    code = (
        "import sys, gateway.server.process.run; "
        "print([m for m in ('torch', 'openai', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.stdout == "[]\n", done.stderr


def test_it_serves_https_with_the_certificate_of_the_file(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with serving(tmp_path, server=f", tls: {{cert: {cert}, key: {key}}}") as (_, address):
        trusting = ssl.create_default_context(cafile=str(cert))
        answer = httpx.get(f"https://{address}/healthz", verify=trusting)
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers


def test_a_certificate_that_is_none_any_more_is_not_taken_and_the_next_one_is(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with serving(tmp_path, server=f", tls: {{cert: {cert}, key: {key}}}") as (process, address):
        assert process.stderr is not None
        first, valid = ssl.create_default_context(cafile=str(cert)), cert.read_bytes()
        assert httpx.get(f"https://{address}/healthz", verify=first).status_code == 200
        cert.write_text("nothing")
        process.send_signal(signal.SIGHUP)
        while "not reloaded: server.tls" not in (said := process.stderr.readline()):
            assert said
        assert httpx.get(f"https://{address}/healthz", verify=first).status_code == 200
        cert.write_bytes(valid)
        certificate(tmp_path)
        second = ssl.create_default_context(cafile=str(cert))
        process.send_signal(signal.SIGHUP)
        while '"reloaded"' not in (said := process.stderr.readline()):
            assert said
        assert httpx.get(f"https://{address}/healthz", verify=second).status_code == 200


def test_a_certificate_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    config = tmp_path / "run.yaml"
    config.write_text(f"version: 1\nserver: {{port: 0, tls: {{cert: {bad}, key: {bad}}}}}\n")
    done = subprocess.run([sys.executable, "-c", SERVE, str(config)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "server.tls" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_several_processes_serve_one_port_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, server=", workers: 2") as (process, address):
        until_serving(address)
        first = children(process)
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        end = time.monotonic() + 20
        while len(now := children(process)) < 2 or first[0] in now:
            assert time.monotonic() < end, now
        until_serving(address)
        assert first[1] in now
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SO_REUSEPORT spreads connections on Linux")
def test_metrics_are_those_of_all_processes_and_a_reload_reaches_all(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    with serving(tmp_path, server=", workers: 2", extra="telemetry: {prometheus: true}\n") as (_, address):
        until_serving(address)
        for _ in range(20):
            assert httpx.get(f"http://{address}/nothing").status_code == 404
        told = httpx.get(f"http://{address}/metrics").text
        counted = [line for line in told.splitlines() if line.startswith("gateway_requests_total") and '"404"' in line]
        assert [line.rpartition(" ")[2] for line in counted] == ["20.0"]
        config.write_text(config.read_text() + "models: {fast: up/m}\n")
        assert httpx.post(f"http://{address}/admin/reload").status_code == 200
        for _ in range(10):
            names = [row["id"] for row in httpx.get(f"http://{address}/v1/models").json()["data"]]
            assert "fast" in names


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_metrics_that_were_told_never_get_less_when_a_process_dies(tmp_path: Path) -> None:
    def refusals() -> float:
        told = httpx.get(f"http://{address}/metrics").text
        counted = [line for line in told.splitlines() if line.startswith("gateway_requests_total") and '"404"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in counted)

    with serving(tmp_path, server=", workers: 2", extra="telemetry: {prometheus: true}\n") as (process, address):
        for count in (20, 40):
            until_serving(address)
            for _ in range(20):
                assert httpx.get(f"http://{address}/nothing").status_code == 404
            assert refusals() == count
            first = children(process)
            os.kill(first[0], signal.SIGKILL)
            end = time.monotonic() + 20
            while len(now := children(process)) < 2 or first[0] in now:
                assert time.monotonic() < end, now
                with suppress(httpx.TransportError):
                    assert refusals() == count
            until_serving(address)
            assert refusals() == count


def test_a_signal_reloads_the_file(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    with serving(tmp_path) as (process, address):
        until_serving(address)
        config.write_text(config.read_text() + "models: {fast: up/m}\n")
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 10
        while "fast" not in httpx.get(f"http://{address}/v1/models").text:
            assert time.monotonic() < end


@pytest.mark.parametrize("workers", [1, 2])
def test_a_key_of_run_yaml_with_the_id_of_another_key_ends_the_start(tmp_path: Path, workers: int) -> None:
    config = tmp_path / "run.yaml"
    text = (
        f"version: 1\nserver: {{port: 0, workers: {workers}}}\nstorage: {{url: 'sqlite:///{tmp_path}/gateway.db'}}\n"
        "providers: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
        "auth: {hash_secret: pepper-of-the-test, keys: [{id: ours, secret: secret-of-ours}]}\n"
    )
    config.write_text(text.replace("ours", "other"))
    assert main(["keys", "create", "ours", "--config", str(config)]) == 0
    config.write_text(text)
    command = [sys.executable, "-c", SERVE, str(config)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=30, check=False)
    assert ended.returncode == 1
    assert f"gateway: {config}: auth.keys: 'ours': a key of this id was made at run time" in ended.stderr
    assert "started again" not in ended.stderr


def test_a_service_manager_is_told_when_it_serves_reloads_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        with serving(tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as (process, _):
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGHUP)
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(100))
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(10) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_local_models_of_several_processes_run_in_one_more_which_is_replaced_when_it_dies(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "version: 1\nserver: {port: 0, workers: 2}\nstorage: {url: memory}\n"
        "providers: {local: {type: local, device: cpu, models: {tiny: {source: ./nowhere.gguf}}}}\n"
    )
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(config)], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stderr is not None
        address = process.stderr.readline().rpartition("://")[2].strip().removesuffix("/v1")
        assert len(children(process)) == 3
        engine = children(process)[-1]  # the one that was started last
        until_told(address, "nowhere.gguf")
        config.write_text(config.read_text().replace("nowhere", "elsewhere"))
        assert httpx.post(f"http://{address}/admin/reload").status_code == 200
        until_told(address, "elsewhere.gguf")
        os.kill(engine, signal.SIGKILL)
        until_told(address, "starting")
        until_told(address, "elsewhere.gguf")
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        said = process.stderr.read()
        assert "gateway: the local models' process has ended, and is started again" in said
        assert "\ngateway: model tiny failed to load: " in said
    finally:
        process.kill()
        process.communicate()


def until_told(address: str, reason: str) -> None:
    """Until the gateway is not ready for this reason."""
    end = time.monotonic() + 30
    told = ""
    while reason not in told:
        assert time.monotonic() < end, told
        told = httpx.get(f"http://{address}/readyz").text
