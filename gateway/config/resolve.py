"""The tree with lines -> plain values with every `${...}` replaced, and a record of where they came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config.document import MappingNode, Node, ScalarNode, SequenceNode, parse_scalar
from gateway.config.faults import Fault, Location
from gateway.config.substitution import BadSubstitution, MissingValue, substitute

__all__ = ["Resolved", "resolve"]

MAX_NODES = 200_000
_PLACEHOLDER = ""  # stands where a value could not be had; what is said about it later is not reported


@dataclass(slots=True)
class Resolved:
    """Plain values: dict, tuple, str, int, float, bool, None. Built once by `resolve`, then only read."""

    value: object = None
    lines: dict[Location, int] = field(default_factory=dict)
    """The line of every key and every list item."""
    substituted: dict[Location, tuple[str, ...]] = field(default_factory=dict)
    """Where a `${...}` stood, with the values that came from outside the file (a default that applied gives none)."""
    lone: dict[Location, str] = field(default_factory=dict)
    """Where the whole text was one `${...}`: the text, which takes the type that the field has."""
    missing: list[Fault] = field(default_factory=list)
    """Variables and files that do not exist."""
    malformed: list[Fault] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """The line of `location`, or of the nearest thing around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)


def resolve(root: Node, env: Mapping[str, str], folder: Path) -> Resolved:
    """Every string value of the tree substituted. `folder` is where relative `${file:...}` names start."""
    walk = _Walk(env, folder)
    walk.out.value = walk.visit(root, ())
    return walk.out


class _Walk:
    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self.out = Resolved()
        self._env = env
        self._folder = folder
        self._nodes = 0

    def visit(self, node: Node, at: Location) -> object:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            if self._nodes == MAX_NODES + 1:
                why = f"more than {MAX_NODES} values once the aliases are expanded"
                self.out.malformed.append(Fault((), node.line, why))
            return None
        match node:
            case ScalarNode():
                return self._scalar(node, at)
            case SequenceNode():
                items = []
                for index, item in enumerate(node.items):
                    self.out.lines[(*at, index)] = item.line
                    items.append(self.visit(item, (*at, index)))
                    if self._nodes > MAX_NODES:
                        break
                return tuple(items)
            case MappingNode():
                mapping: dict[str, object] = {}
                for key, line, value in node.entries:
                    self.out.lines[(*at, key)] = line
                    mapping[key] = self.visit(value, (*at, key))
                    if self._nodes > MAX_NODES:
                        break
                return mapping

    def _scalar(self, node: ScalarNode, at: Location) -> object:
        value = parse_scalar(node.text) if node.plain else node.text
        if not isinstance(value, str) or "${" not in value:
            return value
        try:
            substituted = substitute(value, self._env, self._folder)
        except MissingValue as error:
            self.out.missing.append(Fault(at, node.line, str(error)))
            return _PLACEHOLDER
        except BadSubstitution as error:
            self.out.malformed.append(Fault(at, node.line, str(error)))
            return _PLACEHOLDER
        self.out.substituted[at] = substituted.values
        if substituted.lone:
            self.out.lone[at] = substituted.text
        return substituted.text
