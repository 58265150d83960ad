"""LoRA adapters as peft saves them: a folder with adapter_config.json and adapter_model.safetensors.

Owns what the two files mean (peft 0.21) and refuses by name what this engine does not compute. Every tensor is held
against the base model before it is read.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.lora import LoraSite, LoraSites, LowRank
from local_engine.layers.share import Share
from local_engine.loading.fields import FieldReader
from local_engine.loading.module_names import ModuleNames
from local_engine.loading.safetensors import read_json

__all__ = ["load_adapter"]

_CONFIG, _WEIGHTS, _PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
_TENSOR = re.compile(r"base_model\.model\.(.+)\.(lora_[AB])\.weight")
_MAX_RANK = 4096
_FLOATS = ("F64", "F32", "F16", "BF16")

# Keys that change nothing about what a saved adapter computes. fan_in_fan_out is about the base's own matrix, which
# here is never stored transposed; the rest is about training.
_WITHOUT_EFFECT = frozenset(
    (
        "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
        "fan_in_fan_out", "inference_mode", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core",
        "peft_version", "qalora_group_size", "revision", "task_type",
    )
)  # fmt: skip
_READ = frozenset(
    (
        "alpha_pattern", "bias", "exclude_modules", "init_lora_weights", "layers_pattern", "layers_to_transform",
        "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules", "use_rslora",
    )
)  # fmt: skip
# Ways to begin that leave the base as it is. Of pissa, olora, corda and loftq the base is another one.
_PLAIN_BEGINNINGS = ("gaussian", "eva", "orthogonal")


class _Slice(Protocol):
    def get_dtype(self) -> str: ...
    def get_shape(self) -> list[int]: ...


class _File(Protocol):
    """What is used of safetensors' open file, which has no types."""

    def offset_keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def get_slice(self, name: str) -> _Slice: ...


class _Pair(NamedTuple):
    """The two tensors of one adapted matrix, by their names in the file, and what their product is multiplied with."""

    down: str
    up: str
    scale: float


def load_adapter(
    folder: Path, sites: LoraSites, *, names: ModuleNames, device: torch.device, dtype: torch.dtype
) -> dict[str, LowRank]:
    """What the adapter adds to each linear layer, by the layer's name, on `device` in `dtype`. names: of the base's.

    Blocks. Raises ModelLoadError: one line that names the folder, the file, and the key or the tensor.
    """
    try:
        return _read(folder, sites, names, device=device, dtype=dtype)
    except ModelLoadError as error:
        raise ModelLoadError(folder, str(error)) from error


def _read(
    folder: Path, sites: LoraSites, names: ModuleNames, *, device: torch.device, dtype: torch.dtype
) -> dict[str, LowRank]:
    config = _LoraConfig.read(folder / _CONFIG)
    file = folder / _WEIGHTS
    if not file.is_file():
        pickled = (folder / _PICKLE).is_file()
        raise ModelLoadError(file, "is missing" + (f"; {_PICKLE} is a pickle and is not read" if pickled else ""))
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = _Tensors(file, opened, names)
            pairs = _pairs(tensors, config, sites)
            return {
                site.name: _low_rank(tensors, site, pairs, sites.share_of).to(device, dtype)
                for site in {sites.by_part[part].name: sites.by_part[part] for part in pairs}.values()
            }
    except (OSError, SafetensorError) as error:
        raise ModelLoadError(file, f"not a whole safetensors file: {error}") from error


@dataclass(frozen=True, slots=True)
class _Modules:
    """Names of modules as peft matches them: a list of endings, or one regular expression for the whole."""

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None

    def match(self, module: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(module) is not None
        return any(module == name or module.endswith(f".{name}") for name in self.names)


@dataclass(frozen=True, slots=True)
class _LoraConfig:
    """adapter_config.json. Patterns are tried in the file's order; the first that matches a module's end counts."""

    rank: int
    alpha: float
    uses_rslora: bool
    rank_pattern: tuple[tuple[re.Pattern[str], float], ...]
    alpha_pattern: tuple[tuple[re.Pattern[str], float], ...]
    targets: _Modules
    excluded: _Modules
    layers: tuple[int, ...] | None
    layer_pattern: re.Pattern[str]

    @staticmethod
    def read(path: Path) -> "_LoraConfig":
        values = read_json(path)
        fields = FieldReader(path, values)
        _refuse_unsupported(fields, values)
        layers = fields.integers("layers_to_transform")
        above = values.get("layers_pattern")
        above = [above] if isinstance(above, str) else above or [r"[^.]*"]
        if not isinstance(above, list) or not all(isinstance(name, str) for name in above):
            fields.refuse("layers_pattern: expected a string or a list of strings")
        return _LoraConfig(
            rank=fields.integer("r"),
            alpha=fields.number("lora_alpha"),
            uses_rslora=fields.boolean("use_rslora", False),
            rank_pattern=_patterns(fields, values, "rank_pattern"),
            alpha_pattern=_patterns(fields, values, "alpha_pattern"),
            targets=_modules(fields, values, "target_modules"),
            excluded=_modules(fields, values, "exclude_modules"),
            layers=layers or None,
            layer_pattern=_compiled(fields, "layers_pattern", rf"(?:^|.*?\.)(?:{'|'.join(above)})\.(\d+)\."),
        )

    def rank_of(self, module: str) -> int:
        return int(_first(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        rank = self.rank_of(module)
        return _first(self.alpha_pattern, module, self.alpha) / (math.sqrt(rank) if self.uses_rslora else rank)

    def adapts(self, module: str) -> bool:
        """Whether the adapter was trained on this module."""
        if self.excluded.match(module) or not self.targets.match(module):
            return False
        if self.layers is None or self.targets.pattern is not None:
            return True
        found = self.layer_pattern.match(module)
        return found is not None and int(found.group(1)) in self.layers


def _refuse_unsupported(fields: FieldReader, values: Mapping[str, object]) -> None:
    kind, bias = fields.text("peft_type"), fields.text("bias", "none")
    if kind != "LORA":
        fields.refuse(f"peft_type is {kind!r}, supported is 'LORA'")
    if bias != "none":
        fields.refuse(f"bias is {bias!r}, supported is 'none'")
    start = values.get("init_lora_weights", True)
    if not isinstance(start, bool) and start not in _PLAIN_BEGINNINGS:
        fields.refuse(f"init_lora_weights is {start!r}, which changes the base model; save the adapter as a plain one")
    for name in sorted(values.keys() - _WITHOUT_EFFECT - _READ):
        if values[name]:
            fields.refuse(f"{name} is not supported")
    if not 1 <= fields.integer("r") <= _MAX_RANK:
        fields.refuse(f"r is {fields.integer('r')}, expected 1 to {_MAX_RANK}")
    if not math.isfinite(fields.number("lora_alpha")):
        fields.refuse("lora_alpha is no finite number")


def _modules(fields: FieldReader, values: Mapping[str, object], name: str) -> _Modules:
    value = values.get(name)
    if isinstance(value, str):
        return _Modules((), _compiled(fields, name, value))
    return _Modules(fields.texts(name), None)


def _patterns(
    fields: FieldReader, values: Mapping[str, object], name: str
) -> tuple[tuple[re.Pattern[str], float], ...]:
    numbers = fields.table(name)
    if numbers is None:
        return ()
    table = values[name]
    keys = list(table) if isinstance(table, dict) else []
    for key in keys:
        value = numbers.number(key)
        if not 0 < value < math.inf:
            fields.refuse(f"{name}: {key!r} is {value}, expected a positive number")
        if name == "rank_pattern" and not 1 <= numbers.integer(key) <= _MAX_RANK:
            fields.refuse(f"rank_pattern: {key!r} is {value:.0f}, expected 1 to {_MAX_RANK}")
    return tuple((_compiled(fields, name, rf"(?:.*\.)?(?:{key})$"), numbers.number(key)) for key in keys)


def _compiled(fields: FieldReader, name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        fields.refuse(f"{name}: {pattern!r} is no regular expression: {error}")


def _first(patterns: tuple[tuple[re.Pattern[str], float], ...], module: str, default: float) -> float:
    return next((value for pattern, value in patterns if pattern.match(module)), default)


class _Tensors:
    """The open file; what is wrong with a tensor is told by its name."""

    def __init__(self, file: Path, opened: _File, names: ModuleNames) -> None:
        self.file = file
        self.names = names
        self._opened = opened

    def refuse(self, name: str, reason: str) -> NoReturn:
        raise ModelLoadError(self.file, f"tensor {name!r} {reason}")

    def by_module(self) -> dict[str, dict[str, str]]:
        """The names of each adapted module's tensors, by lora_A and lora_B."""
        found: dict[str, dict[str, str]] = {}
        for name in self._opened.offset_keys():
            parts = _TENSOR.fullmatch(name)
            if parts is None:
                self.refuse(name, "is no lora_A.weight or lora_B.weight of a linear layer")
            found.setdefault(parts[1], {})[parts[2]] = name
        return found

    def check(self, name: str, expected: tuple[int, int]) -> None:
        part = self._opened.get_slice(name)
        shape = tuple(part.get_shape())
        if shape != expected:
            self.refuse(name, f"has shape {list(shape)}, expected {list(expected)}")
        if part.get_dtype() not in _FLOATS:
            self.refuse(name, f"is of type {part.get_dtype()}, expected one of {', '.join(_FLOATS)}")

    def read(self, name: str) -> Tensor:
        tensor = self._opened.get_tensor(name).float()
        if not bool(tensor.isfinite().all()):
            self.refuse(name, "holds numbers that are not finite")
        return tensor

    def read_up(self, name: str, module: str) -> Tensor:
        """The side of the outputs, in the order that the module's rows have here. module: our name of it."""
        rows = self.names.rows(module)
        return self.read(name) if rows is None else rows.ordered(self.read(name))


def _pairs(tensors: _Tensors, config: _LoraConfig, sites: LoraSites) -> dict[str, _Pair]:
    """The two tensors of each adapted matrix, by our names, all of them there and of the base's shape."""
    found = tensors.by_module()
    for module, names in found.items():
        if tensors.names.ours(module) not in sites.by_part:
            tensors.refuse(
                min(names.values()), "adapts a layer that takes none: attention and dense feed-forward projections do"
            )
        if not config.adapts(module):
            tensors.refuse(min(names.values()), "is of a layer that target_modules does not name")
    pairs = {}
    for ours, site in sites.by_part.items():
        module = tensors.names.theirs(ours, found)
        if not config.adapts(module):
            continue
        names = found.get(module, {})
        for side in ("lora_A", "lora_B"):
            if side not in names:
                tensors.refuse(f"base_model.model.{module}.{side}.weight", "is missing")
        pair = pairs[ours] = _Pair(names["lora_A"], names["lora_B"], config.scale_of(module))
        rank, share = config.rank_of(module), sites.share_of(f"{ours}.weight")
        tensors.check(pair.down, (rank, share.of_columns or site.inputs))
        tensors.check(pair.up, (share.of_rows or site.parts[ours], rank))
    if not pairs:
        raise ModelLoadError(tensors.file, "adapts nothing: target_modules names no layer of the base model")
    return pairs


def _low_rank(
    tensors: _Tensors,
    site: LoraSite,
    pairs: Mapping[str, _Pair],
    share_of: Callable[[str], Share],
) -> LowRank:
    """The matrices of a layer's parts as one pair: A one under the other, B on the diagonal, times its scale.

    A has the inputs, and B the outputs, that are here.
    """
    parts = [part for part in site.parts if part in pairs]
    downs = [share_of(f"{part}.weight").cut(tensors.read(pairs[part].down), columns=(1, 1)) for part in parts]
    up = torch.zeros(site.outputs, sum(len(down) for down in downs))
    row = column = 0
    for part, rows in site.parts.items():
        if part in pairs:
            whole = tensors.read_up(pairs[part].up, part) * pairs[part].scale
            side = share_of(f"{part}.weight").cut(whole, rows=(0, 1))
            up[row : row + rows, column : column + side.shape[1]] = side
            column += side.shape[1]
        row += rows
    return LowRank(torch.cat(downs), up)
