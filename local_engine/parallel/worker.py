"""A process that computes one rank's share of a model: what `python -m local_engine.parallel.worker` runs.

Does what rank 0 tells and decides nothing. It lives as long as its standard input is open, which is as long as the
process that started it lives and wants it, however that one ends.
"""

import json
import logging
import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import torch

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.executor import Executor
from local_engine.images import PlacedImage
from local_engine.loading.load import LoadedModel, load_model
from local_engine.parallel.messages import Kind, error_fields, told_config
from local_engine.parallel.process_ranks import Control, ProcessRanks, connect
from local_engine.parallel.step_plan import asked_rows, parsed_pairs, parsed_plan

__all__ = ["Worker", "main"]

_logger = logging.getLogger(__name__)


class Worker:
    """One rank. Raises what its device raises."""

    def __init__(self, control: Control, ranks: ProcessRanks, reports: TextIO, device: str) -> None:
        self._control = control
        self._ranks = ranks
        self._reports = reports
        self._device = device
        self._loaded: LoadedModel | None = None
        self._config = EngineConfig()
        self._executor: Executor | None = None
        self._adapters: dict[int, Adapter] = {}

    @torch.inference_mode()
    def run(self) -> None:
        """Obeys until rank 0 is gone."""
        while (message := self._control.receive()) is not None:
            kind, payload = message
            match Kind(kind):
                case Kind.LOAD:
                    self._load(json.loads(payload))
                case Kind.OPEN:
                    self._open(json.loads(payload))
                case Kind.ADAPTER:
                    self._read_adapter(json.loads(payload))
                case Kind.CLOSE:
                    self._close()
                case Kind.STEP:
                    self._step(payload)
                case Kind.LOGITS:
                    self._logits(int.from_bytes(payload, "little"))
                case Kind.COPY:
                    self._opened.copy_blocks(parsed_pairs(payload))

    @property
    def _model(self) -> LoadedModel:
        assert self._loaded is not None
        return self._loaded

    @property
    def _opened(self) -> Executor:
        assert self._executor is not None
        return self._executor

    def _load(self, fields: dict[str, Any]) -> None:
        self._loaded = None
        self._adapters.clear()
        config = told_config(fields, self._device)
        try:
            mmproj = None if fields["mmproj"] is None else Path(fields["mmproj"])
            self._loaded = load_model(Path(fields["path"]), config, ranks=self._ranks, mmproj=mmproj)
        except Exception as error:  # rank 0 tells of it, and may load another model
            self._report({"error": error_fields(error)})
        else:
            self._report({})

    def _open(self, fields: dict[str, Any]) -> None:
        self._config = told_config(fields, self._device)
        self._executor = self._model.open_executor(self._config)
        self._report({"num_blocks": self._executor.num_blocks})

    def _read_adapter(self, fields: dict[str, Any]) -> None:
        try:
            deltas = self._model.read_adapter(Path(fields["folder"]))
        except Exception as error:  # the model goes on without it
            self._report({"error": error_fields(error)})
        else:
            self._adapters[fields["number"]] = Adapter(str(fields["number"]), deltas)
            self._report({})

    def _close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        self._executor = None
        self._report({})

    def _step(self, payload: bytes) -> None:
        plan = parsed_plan(payload, self._adapters)
        for chunk, spans in zip(plan.chunks, plan.spans, strict=True):
            chunk.sequence.images = tuple(self._image(start, stop) for start, stop in spans)
        step = self._opened.forward(plan.chunks)
        if plan.logits_follow:
            # The executor has put the chunks in an order of its own.
            asked: dict[Chunk, int] = {chunk: chunk.num_asked for chunk in plan.chunks}
            rows = asked_rows(step.chunks, step.first_row, [asked[chunk] for chunk in step.chunks])
            self._opened.logits(step.hidden[rows])
        for number in plan.forgotten:
            self._adapters.pop(number, None)

    def _image(self, start: int, stop: int) -> PlacedImage:
        vision = self._model.info.config.vision
        rows = self._rows(stop - start, parts=1 + (0 if vision is None else vision.num_stacked))
        return PlacedImage(start, stop, b"", rows)

    def _logits(self, num_rows: int) -> None:
        self._opened.logits(self._rows(num_rows))

    def _rows(self, count: int, *, parts: int = 1) -> torch.Tensor:
        """Rows of so many hidden states each from rank 0."""
        shape = (count, parts * self._model.info.config.hidden_size)
        rows = torch.empty(shape, dtype=getattr(torch, self._config.float_dtype), device=self._device)
        self._ranks.broadcast(rows)
        return rows

    def _report(self, fields: dict[str, object]) -> None:
        _write(self._reports, fields)


def _write(reports: TextIO, fields: dict[str, object]) -> None:
    reports.write(json.dumps(fields) + "\n")
    reports.flush()


def _follow_parent(meeting: Path, met: threading.Event) -> None:
    """Ends this process when the other end of standard input is closed, whatever its other thread waits for."""
    while sys.stdin.buffer.read(1 << 16):
        pass
    # Where rank 0 was killed, it could not do this. Before they have met, ranks would wait for a folder that is gone,
    # in a call that lets no other thread run.
    if met.is_set():
        shutil.rmtree(meeting.parent, ignore_errors=True)
    os._exit(0)


def main() -> None:
    """The first line of standard input says which rank this is, and the second that the others are ready to meet.

    Reports go to what was standard output.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group or service; rank 0 decides when it is over
        signal.signal(number, signal.SIG_IGN)
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no report
    fields = json.loads(sys.stdin.buffer.readline())
    logging.basicConfig(level=logging.WARNING)
    rank, device, meeting = fields["rank"], torch.device(fields["device"]), Path(fields["meeting"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = 1 if device.type == "cuda" else max(torch.get_num_threads() // fields["size"], 1)
    torch.set_num_threads(fields["threads"] or ours)
    try:
        _write(reports, {})
        if not sys.stdin.buffer.readline():
            os._exit(0)
        met = threading.Event()
        threading.Thread(target=_follow_parent, args=(meeting, met), daemon=True).start()
        control, ranks = connect(meeting, rank=rank, size=fields["size"], device=device, ordered=fields["ordered"])
        met.set()
        Worker(control, ranks, reports, fields["device"]).run()
    except Exception as error:  # the process's edge
        _logger.exception("rank %d of a model ended", rank)
        with suppress(BrokenPipeError):  # nobody is left to hear it
            _write(reports, {"error": error_fields(error)})
    finally:
        os._exit(1)  # at once: threads of torch and NCCL would wait for the other ranks


if __name__ == "__main__":
    main()
