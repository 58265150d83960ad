"""LoRA adapters as the kernels want them: of each row of a step, the layers of its adapter."""

import ctypes
from collections.abc import Sequence as SequenceOf
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from torch import Tensor

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.kernels.cpu.structures import AdaptedLayerStruct, LowRankStruct

__all__ = ["AdapterLayers"]


class _Layers:
    """One adapter over all layers of a model, with the memory that it points to."""

    def __init__(self, adapter: Adapter, sites: SequenceOf[SequenceOf[str]]) -> None:
        self._kept: list[npt.NDArray[np.float32]] = []
        self._structs = (AdaptedLayerStruct * len(sites))(
            *(AdaptedLayerStruct(*(self._low_rank(adapter, site) for site in layer)) for layer in sites)
        )
        self.address = ctypes.addressof(self._structs)

    def _low_rank(self, adapter: Adapter, site: str) -> LowRankStruct:
        delta = adapter.deltas.get(site)
        if delta is None:
            return LowRankStruct(None, None, 0)
        return LowRankStruct(self._copy(delta.down), self._copy(delta.up.T), delta.down.shape[0])

    def _copy(self, matrix: Tensor) -> int:
        values = np.array(matrix.numpy(), dtype=np.float32, order="C")
        self._kept.append(values)
        return values.ctypes.data


class AdapterLayers:
    """The adapters that an executor has met, by the sites of its model. Those that are unloaded are forgotten."""

    def __init__(self, sites: SequenceOf[SequenceOf[str]]) -> None:
        self._sites = sites
        self._known: WeakKeyDictionary[Adapter, _Layers] = WeakKeyDictionary()

    def of_rows(self, chunks: SequenceOf[Chunk]) -> npt.NDArray[np.uintp] | None:
        """The address of each row's layers, 0 for none; None where no row has an adapter."""
        if all(chunk.sequence.adapter is None for chunk in chunks):
            return None
        addresses = [self._address(chunk.sequence.adapter) for chunk in chunks]
        return np.repeat(np.array(addresses, dtype=np.uintp), [chunk.stop - chunk.start for chunk in chunks])

    def _address(self, adapter: Adapter | None) -> int:
        if adapter is None:
            return 0
        if adapter not in self._known:
            self._known[adapter] = _Layers(adapter, self._sites)
        return self._known[adapter].address
