import os
import subprocess
import sys

from gateway.responses.workers import is_dead, worker_name


def test_a_process_has_one_name_and_is_not_dead() -> None:
    assert worker_name() == worker_name()
    assert not is_dead(worker_name(), worker_name())


def test_a_worker_is_dead_when_its_process_is_gone_or_another_one_has_its_number() -> None:
    own = worker_name()
    host = own.partition("/")[0]
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert is_dead(f"{host}/{gone.pid}/x", own)
    assert is_dead(f"{host}/{os.getpid()}/another", own)
    assert not is_dead(f"{host}/{os.getppid()}/x", own)


def test_of_other_machines_nothing_is_known() -> None:
    for worker in ("elsewhere/1/x", "", "no name", f"{worker_name().partition('/')[0]}/x/y"):
        assert not is_dead(worker, worker_name())
