"""The file that `prices:` names: what tokens of each model cost, with every fault in it."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from gateway.config.document import parse_document
from gateway.config.expectations import describe
from gateway.config.faults import Fault, Location, render_location
from gateway.config.resolve import resolve
from gateway.config.sections.section import Amount, FrozenMap, Section, Text, empty_map

__all__ = ["PriceRow", "read_prices"]

_MAX_FILE_BYTES = 5_000_000


class PriceRow(Section):
    """Dollars for a million tokens, and for what is counted otherwise."""

    input: Amount | None = Field(default=None, description="Of the prompt.")
    output: Amount | None = Field(default=None, description="Of the answer, reasoning included.")
    cached: Amount | None = Field(default=None, description="Of the prompt, read from a cache; default: input.")
    cache_write: Amount | None = Field(default=None, description="Of the prompt, written to a cache; default: input.")
    cache_write_1h: Amount | None = Field(default=None, description="The same for an hour; default: cache_write.")
    image: Amount | None = Field(default=None, description="Dollars for an image that is made.")
    characters: Amount | None = Field(default=None, description="Dollars for a million characters that are spoken.")
    minute: Amount | None = Field(default=None, description="Dollars for a minute of sound that is written down.")
    search: Amount | None = Field(default=None, description="Dollars for a query with up to 100 documents to rank.")

    tiers: FrozenMap[Amount] = Field(
        default_factory=empty_map,
        description="What tokens cost at another service tier, in parts of the above: {priority: 2, flex: 0.5}.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> "PriceRow":
        if (self.input is None) != (self.output is None):
            raise ValueError("expected both 'input' and 'output'")
        if all(each is None for each in (self.input, self.image, self.characters, self.minute, self.search)):
            raise ValueError("expected 'input' and 'output', or one of image, characters, minute, search")
        return self


_ROWS: TypeAdapter[dict[str, PriceRow]] = TypeAdapter(dict[Text, PriceRow])


def read_prices(path: Path, at: Location, line: int) -> tuple[Mapping[str, PriceRow], list[Fault]]:
    """The rows by `provider/model` and the faults of the file, which are told at the place that names it. Blocks."""

    def fault(where: str, why: str) -> Fault:
        return Fault(at, line, f"{path.name}{where}: {why}")

    try:
        data = path.read_bytes()
    except OSError as error:
        return {}, [fault("", f"cannot be read: {error.strerror or error}")]
    if len(data) > _MAX_FILE_BYTES:
        return {}, [fault("", f"larger than {_MAX_FILE_BYTES} bytes")]
    try:
        root, found = parse_document(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return {}, [fault("", "not UTF-8 text")]
    faults = [fault(f":{each.line}", each.message) for each in found]
    if root is None:
        return {}, faults
    plain = resolve(root, {}, path.parent)
    try:
        rows = _ROWS.validate_python(plain.value, strict=True)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            place: Location = tuple(each["loc"])
            faults.append(fault(f":{plain.line(place)}", f"{render_location(place)}: {describe(PriceRow, each)}"))
        return {}, faults
    return MappingProxyType(rows), faults
