"""Rows of evidence with a given valid share, finished rounds of them, and a design's data by name."""

import dataclasses
from collections.abc import Iterable, Sequence

import jax
from hypothesis import strategies as st

from engineer import RULES, Evidence, KindEvidence, PastRound
from engineer.engineers import Rule
from engineer.evidence import CHECKS, TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

SIZES = (3, 4, 5, 6)
KINDS = tuple(map(Kind.of, SIZES))
RANDOM = LakeConfig(SIZES, (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4), (0.3, 0.4, 0.5, 0.6))
REDESIGNED = LakeConfig(SIZES, (0.25, 0.25, 0.25, 0.25), (0.123, 0.2, 0.2, 0.2), (0.1, 0.1, 0.1, 0.1))
KEY = jax.random.key(3)


def measured(kind: Kind | int | str, share: float, n: int = 100, **more) -> KindEvidence:
    """A row with this greedy and sampled valid share."""
    failures = dict.fromkeys(CHECKS, 0) | {"goal_reached": n - round(share * n)}
    more = {"sampled_valid": share if n else None, "groups": n // 5} | more
    return KindEvidence(Kind.of(kind), n, round(share * n), 0, failures, failures, **more)


def known(validated: Iterable[KindEvidence], trained: Iterable[KindEvidence] = ()) -> Evidence:
    return Evidence(tuple(validated), 0.5, 0.02, 4, 20.0, 0.0, training=TrainingEvidence(tuple(trained), ()))


def sizes(*shares: float) -> tuple[KindEvidence, ...]:
    """Rows of boards of 3x3 on."""
    return tuple(measured(size, share) for size, share in zip(SIZES, shares, strict=False))


def trained(*rounds: tuple[LakeConfig, Iterable[KindEvidence]]) -> list[PastRound]:
    """Finished rounds, by configuration and rows of the training."""
    return [PastRound(k, config, known(sizes(0.5, 0.5, 0.5, 0.5), rows)) for k, (config, rows) in enumerate(rounds)]


HISTORY = [
    PastRound(0, RANDOM, known(sizes(0.9, 0.5, 0.2, 0.0))),
    PastRound(1, REDESIGNED, known(sizes(1, 0.75, 0.5, 0.1))),
]


def design(rule: str | Rule, history: Sequence[PastRound], key: jax.Array = KEY) -> LakeConfig:
    return (RULES[rule] if isinstance(rule, str) else rule)(history[-1].evidence, history, key)


def given_data(config: LakeConfig) -> dict[str, float]:
    """The kinds that have data."""
    return {str(kind): share for kind, share in zip(config.kinds, config.data, strict=True) if share}


def check_rule(rule: Rule) -> None:
    """One size alone, and kinds other than those that are validated; an illegal configuration cannot be made."""
    one = LakeConfig((5,), (1.0,), (0.2,), (0.1,))
    row = measured(5, 0.95, learnable=5, advantage=0.4)
    assert design(rule, [PastRound(0, one, known([measured(5, 0.5)], [row]))]).data == (1.0,)
    lake = LakeConfig((3, 4, "4x4", "corridor5x3"), (0.4, 0.3, 0.3, 0.0), (0.1,) * 4, (0.2,) * 4)
    training = [measured(kind, 0.6, learnable=9, advantage=0.4) for kind in (3, 4, "4x4")]
    evidence = known([measured("rooms5", 0.3), measured("corridor5x3", 0.0)], training)
    assert design(rule, [PastRound(0, lake, evidence)]).kinds == lake.kinds


_shares = st.sampled_from((0.0, 1.0)) | st.floats(0, 1)
_configs = st.tuples(
    st.lists(st.integers(0, 200), min_size=4, max_size=4).filter(any),
    st.lists(st.floats(0, 0.5), min_size=4, max_size=4),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
).map(lambda c: LakeConfig(SIZES, tuple(x / sum(c[0]) for x in c[0]), tuple(c[1]), tuple(c[2])))


@st.composite
def _rows(draw, kinds):
    rows = []
    for kind in kinds:
        n, groups = draw(st.sampled_from((0, 1, 7, 100))), draw(st.sampled_from((0, 1, 20)))
        more = {"groups": groups, "learnable": draw(st.integers(0, groups)), "advantage": draw(st.none() | _shares)}
        rows.append(measured(kind, draw(_shares), n, **more))
    return tuple(rows)


@st.composite
def histories(draw):
    """Finished rounds of four sizes, with any numbers and gaps."""
    past = []
    for k in range(draw(st.integers(1, 4))):
        evidence = Evidence(draw(_rows(SIZES)), None, None, 0, 0.0, 0.0)
        training = draw(st.none() | st.lists(st.sampled_from(SIZES), unique=True).map(sorted).flatmap(_rows))
        training = training if training is None else TrainingEvidence(training, ())
        past.append(PastRound(k, draw(_configs), dataclasses.replace(evidence, training=training)))
    return past


def check_any_history(rule: Rule, history: list[PastRound]) -> None:
    assert design(rule, history).kinds == KINDS  # an illegal configuration cannot be made
    assert design(rule, history) == design(rule, history)
