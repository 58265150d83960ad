"""`quantization_config` of config.json: which packing a model's weights have. What is not known is refused by name."""

from collections.abc import Callable, Mapping

from local_engine.loading.fields import FieldReader
from local_engine.loading.packed.fp8 import Fp8Packing
from local_engine.loading.packed.grouped import awq_packing, gptq_packing
from local_engine.loading.packed.mxfp4 import Mxfp4Packing
from local_engine.loading.plain_source import Packing

__all__ = ["packing_of"]

_GPTQ_BITS = (2, 4, 8)


def packing_of(fields: FieldReader) -> Packing | None:
    """From config.json; None where the weights are plain. Raises ModelLoadError."""
    table = fields.table("quantization_config")
    if table is None:
        return None
    method = table.text("quant_method")
    if method not in _METHODS:
        table.refuse(f"quantization_config: quant_method {method!r}, supported are {', '.join(_METHODS)}")
    return _METHODS[method](table)


def _fp8(table: FieldReader) -> Packing:
    return Fp8Packing(_block(table, "weight_block_size"))


def _mxfp4(_: FieldReader) -> Packing:
    return Mxfp4Packing()


def _compressed(table: FieldReader) -> Packing:
    """compressed-tensors in eight-bit floats; all its groups of layers must have the same grid."""
    kind = table.text("format", "float-quantized")
    if kind not in ("float-quantized", "naive-quantized"):
        table.refuse(f"quantization_config: format {kind!r}, supported is float-quantized")
    blocks = set()
    for name, group in table.tables("config_groups").items():
        weights = group.table("weights")
        if weights is None:
            table.refuse(f"quantization_config: config_groups.{name}.weights is missing")
        bits, number = weights.integer("num_bits"), weights.text("type")
        if (bits, number) != (8, "float"):
            table.refuse(f"quantization_config: config_groups.{name} has {bits}-bit {number}, supported is 8-bit float")
        strategy = weights.text("strategy", "tensor")
        if strategy not in ("tensor", "channel", "block"):
            table.refuse(
                f"quantization_config: config_groups.{name}.strategy {strategy!r}, supported are tensor, channel, block"
            )
        if strategy == "block":
            blocks.add(_block(weights, "block_structure"))
    if len(blocks) > 1:
        table.refuse(f"quantization_config: groups with different block_structure: {sorted(map(str, blocks))}")
    return Fp8Packing(next(iter(blocks), None))


def _gptq(table: FieldReader) -> Packing:
    bits = table.integer("bits")
    if bits not in _GPTQ_BITS:
        table.refuse(f"quantization_config: gptq of {bits} bits, supported are 2, 4 and 8")
    version = table.text("checkpoint_format", "gptq")
    if version not in ("gptq", "gptq_v2"):
        table.refuse(f"quantization_config: checkpoint_format {version!r}, supported are gptq and gptq_v2")
    return gptq_packing(bits, _group_size(table), zeros_less_one=version == "gptq")


def _awq(table: FieldReader) -> Packing:
    bits, version = table.integer("bits"), table.text("version", "gemm").lower()
    if bits != 4 or version != "gemm":
        table.refuse(f"quantization_config: awq of {bits} bits and version {version!r}, supported is 4 bits and gemm")
    if not table.boolean("zero_point", True):
        table.refuse("quantization_config: awq with zero_point false is not supported")
    return awq_packing(_group_size(table))


def _group_size(table: FieldReader) -> int | None:
    size = table.integer("group_size", 128)
    if size != -1 and not 1 <= size <= 1 << 20:
        table.refuse(f"quantization_config: group_size {size}, expected -1 or a positive number")
    return None if size == -1 else size


def _block(table: FieldReader, name: str) -> tuple[int, int] | None:
    sizes = table.integers(name)
    if not sizes:
        return None
    if len(sizes) != 2 or not all(1 <= size <= 1 << 20 for size in sizes):
        table.refuse(f"quantization_config: {name} {list(sizes)}, expected two positive numbers")
    return sizes[0], sizes[1]


_METHODS: Mapping[str, Callable[[FieldReader], Packing]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "awq": _awq,
    "mxfp4": _mxfp4,
}
