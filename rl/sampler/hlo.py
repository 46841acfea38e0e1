"""Reader of a compiled program's text: what one pass through its token loop sends between devices and copies.

Knows XLA's printed form and nothing of models. What is the same in every pass (weights) is told from what changes (the
cache, activations) by following values through loops and fusions, not by names or shapes.
"""

import collections
import dataclasses
import math
import re

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
GATHERING = ("all-gather", "all-to-all", "collective-permute", "ragged-all-to-all")
"""Kinds that bring a shard's data to where it is not."""
PASSING = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "opt-barrier"),
    *("after-all", "add-dependency", "domain", "copy-done", "async-start", "async-update", "async-done"),
)
"""Operations that write no data anew, or whose body says what they write."""

Changing = bool | tuple[bool, ...]
"""Whether a value changes from pass to pass; for a tuple, which of its elements do."""


@dataclasses.dataclass(frozen=True)
class TokenLoop:
    """Counts of what one pass through the token loop does on one device.

    Attributes:
      collectives: by kind.
      weight_gathers: by shape, arrays that are the same in every pass and yet gathered from other devices in each.
      cache_copies: by operation and shape, changing arrays as large as half a layer's keys that are written anew.
    """

    collectives: dict[str, int]
    weight_gathers: dict[str, int]
    cache_copies: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Array:
    """One array of an instruction's result, such as ``bf16[8,128]{1,0:S(1)}``; S: not in the main memory."""

    dtype: str
    dims: tuple[int, ...]
    in_main_memory: bool

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def floating(self) -> bool:
        return self.dtype.startswith(("f", "bf"))

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclasses.dataclass(frozen=True)
class _Instruction:
    """One line of a computation: ``%name = arrays opcode(arguments), attributes``."""

    name: str
    arrays: tuple[_Array, ...]
    opcode: str
    arguments: str
    attributes: str

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.arguments)

    def attribute(self, name: str) -> str:
        match = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else ""

    @property
    def branches(self) -> list[str]:
        """Return the computations of a conditional; each takes one of the operands after the first."""
        match = re.search(r"branch_computations=\{([^}]*)\}", self.attributes)
        either = [self.attribute("true_computation"), self.attribute("false_computation")]
        return re.findall(r"[\w.\-]+", match[1].replace("%", "")) if match else either


Computation = dict[str, _Instruction]
"""Instructions by name, operands before their users; the root is the last."""


def read_token_loop(text: str, layer_size: int) -> TokenLoop:
    """Read the loop over tokens: the one whose number of passes is not known before.

    Args:
      text: of a compiled program, ``compiled.as_text()``.
      layer_size: elements of one layer's keys on one device.

    Raises:
      ValueError: if there is no such loop.
    """
    computations, entry = _read(text)
    loops = [x for x in computations[entry].values() if x.opcode == "while" and _passes(computations, x) is None]
    if not loops:
        raise ValueError("the program has no loop over tokens: one must have a number of passes that is unknown")
    loop = max(loops, key=lambda x: sum(array.size for array in x.arrays))
    walk = _Walk(computations, layer_size)
    body = computations[loop.attribute("body")]
    unchanged = _unchanged(body)
    walk.run(body, [tuple(i not in unchanged for i in range(len(loop.arrays)))], times=1)
    return TokenLoop(dict(walk.collectives), dict(walk.weight_gathers), dict(walk.cache_copies))


class _Walk:
    """A walk that follows values through the body of a loop and counts what it does."""

    def __init__(self, computations: dict[str, Computation], layer_size: int):
        self.computations, self.layer_size = computations, layer_size
        self.collectives = collections.Counter[str]()
        self.weight_gathers = collections.Counter[str]()
        self.cache_copies = collections.Counter[str]()

    def run(self, computation: Computation, parameters: list[Changing], times: int, fused: bool = False) -> Changing:
        """Say whether the result changes, given which parameters do; count what is done, `times` a pass."""
        values: dict[str, Changing] = {}
        for x in computation.values():
            operands = [values[name] for name in x.operands]
            changes = any(map(_any, operands))
            if times:
                self.count_collective(x, changes, times)
            if times and changes and not fused and x.opcode not in PASSING:
                self.count_copies(x, computation, times)
            values[x.name] = self.result(x, parameters, operands, times, fused)
        return values[x.name]

    def result(
        self, x: _Instruction, parameters: list[Changing], operands: list[Changing], times: int, fused: bool
    ) -> Changing:
        """Say whether what an instruction computes changes."""
        match x.opcode:
            case "parameter":
                return parameters[int(x.arguments)]
            case "tuple":
                return tuple(map(_any, operands))
            case "get-tuple-element" if isinstance(operands[0], tuple):
                return operands[0][int(x.attribute("index"))]
            case "copy" | "opt-barrier":
                return operands[0]
            case "while":
                return self.loop(x, operands[0], times)
            case "conditional":
                for name, operand in zip(x.branches, operands[1:], strict=True):
                    self.run(self.computations[name], [operand], times)
                return any(map(_any, operands))
            case "fusion" | "async-start":
                return self.run(self.computations[x.attribute("calls")], operands, times, fused=True)
            case "call":
                return self.run(self.computations[x.attribute("to_apply")], operands, times, fused)
            case _:
                return any(map(_any, operands))

    def loop(self, loop: _Instruction, carried: Changing, times: int) -> Changing:
        """Follow an inner loop: of what it carries, whatever its body makes of changing values changes as well."""
        body = self.computations[loop.attribute("body")]
        while (after := _either(carried, self.run(body, [carried], 0))) != carried:
            carried = after
        self.run(body, [carried], times * (_passes(self.computations, loop) or 1))
        return carried

    def count_collective(self, x: _Instruction, changes: bool, times: int) -> None:
        kind = x.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            self.collectives[kind] += times
            largest = max(x.arrays, key=lambda array: array.size)
            if kind in GATHERING and not changes and largest.floating:
                self.weight_gathers[str(largest)] += times

    def count_copies(self, x: _Instruction, computation: Computation, times: int) -> None:
        """Count large copies: from half a layer's keys on, as prompt and answer may be two arrays."""
        written = x.arrays[:1] if x.opcode == "copy-start" else x.arrays
        in_place = self.updated_in_place(x, computation)
        for i, array in enumerate(written):
            if array.floating and array.in_main_memory and 2 * array.size >= self.layer_size and i not in in_place:
                self.cache_copies[f"{x.opcode} {array}"] += times

    def updated_in_place(self, x: _Instruction, computation: Computation) -> set[int]:
        """Find which arrays of the result are an operand of which a small part is overwritten."""
        inside, root, in_place = computation, x, set()
        if x.opcode == "fusion":
            inside = self.computations[x.attribute("calls")]
            *_, root = inside.values()
        for i, name in enumerate(root.operands if root.opcode == "tuple" else [root.name]):
            while inside[name].opcode == "bitcast":
                name = inside[name].operands[0]
            if inside[name].opcode == "dynamic-update-slice":
                part = inside[inside[name].operands[1]].arrays[0]
                in_place |= {i} if 2 * part.size < self.layer_size else set()
        return in_place


def _any(value: Changing) -> bool:
    return any(value) if isinstance(value, tuple) else value


def _either(a: Changing, b: Changing) -> Changing:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(x or y for x, y in zip(a, b, strict=True))
    return _any(a) or _any(b)


def _unchanged(body: Computation) -> set[int]:
    """Find which elements a loop's body returns as it got them."""
    *_, root = body.values()
    unchanged = set()
    for i, name in enumerate(root.operands):
        while body[name].opcode in ("copy", "copy-start", "copy-done", "bitcast"):
            name = body[name].operands[0]
        if body[name].opcode == "get-tuple-element" and body[name].attribute("index") == str(i):
            unchanged |= {i} if body[body[name].operands[0]].opcode == "parameter" else set()
    return unchanged


def _passes(computations: dict[str, Computation], loop: _Instruction) -> int | None:
    """Return how often a loop's body runs: what XLA says, or the constant that its counter is compared with."""
    trip_count = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes)
    if trip_count:
        return int(trip_count[1])
    condition = computations[loop.attribute("condition")]
    *_, root = condition.values()
    if root.opcode != "compare" or root.attribute("direction") != "LT":
        return None
    limit = condition[root.operands[1]]
    return int(limit.arguments) if limit.opcode == "constant" else None


def _read(text: str) -> tuple[dict[str, Computation], str]:
    """Return all computations by name, and the name of the one that begins."""
    computations: dict[str, Computation] = {}
    entry, current = "", Computation()
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        instruction = re.match(r"  (ROOT )?%([\w.\-]+) = (.*)", line)
        if header:
            current = computations[header[2]] = {}
            entry = header[2] if header[1] else entry
        elif instruction:
            current["ROOT" if instruction[1] else instruction[2]] = _instruction(instruction[2], instruction[3])
    for computation in computations.values():
        root = computation.pop("ROOT")
        computation[root.name] = root
    return computations, entry


def _instruction(name: str, text: str) -> _Instruction:
    """Parse ``(bf16[8]{0}, u32[]) copy-start(%x), attributes``, the parentheses of a tuple only where there is one."""
    end = _closing(text) if text.startswith("(") else text.index(" ")
    arrays = [
        _Array(dtype, tuple(map(int, filter(None, dims.split(",")))), not re.search(r"S\([1-9]", layout))
        for dtype, dims, layout in re.findall(r"(\w+)\[([\d,]*)\](\{[^}]*\})?", text[:end])
    ]
    opcode, rest = text[end:].strip().split("(", 1)
    close = _closing("(" + rest) - 1
    return _Instruction(name, tuple(arrays), opcode, rest[: close - 1], rest[close:])


def _closing(text: str) -> int:
    """Return the index behind the parenthesis that closes the one `text` opens with."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i + 1
    raise ValueError(f"parentheses must be balanced: {text[:80]}")
