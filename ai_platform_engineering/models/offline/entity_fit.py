"""How well an entity of a request serves an argument slot."""

from collections.abc import Mapping

from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot
from ai_platform_engineering.models.offline.entities import Entity, EntityKind, is_label

# How well an entity of one kind serves an argument of another kind.
_KIND_FIT: Mapping[EntityKind, Mapping[EntityKind, float]] = {
    "host": {"host": 1.0, "ip": 0.8, "quoted": 0.6},
    "ip": {"ip": 1.0},
    "cidr": {"cidr": 1.0},
    "url": {"url": 1.0, "host": 0.8, "ip": 0.7},
    "port": {"port": 1.0, "ports": 0.9, "number": 0.4},
    "ports": {},
    "prefix": {"prefix": 1.0},
    "number": {},
    "email": {"email": 1.0},
    "key": {"key": 1.0},
    "slug": {"slug": 1.0},
    "date": {"date": 1.0},
}
_REACHABLE_NAMES = frozenset({"host", "hostname", "server", "target"})


def rate_entity(slot: ArgumentSlot, entity: Entity) -> float:
    """How well the entity serves the slot, from 0 (not at all) to 1."""
    fit = 0.0
    for rank, kind in enumerate(slot.kinds):
        fit = max(fit, _KIND_FIT[kind].get(entity.kind, 0.0) / (1 + 0.2 * rank))
    if entity.kind == "ip" and slot.kinds == ("host",) and not _REACHABLE_NAMES & set(slot.words):
        return fit * 0.5  # a DNS name is hardly an address
    if not _has_fitting_form(slot, entity):
        return 0.0
    if entity.derived:
        return fit * 0.8
    return fit


def _has_fitting_form(slot: ArgumentSlot, entity: Entity) -> bool:
    if entity.kind == "quoted":
        return is_label(entity.value)
    if entity.kind == "number":
        return entity.value.isdigit()
    if entity.kind == "ports":
        return "string" in slot.alternative_types
    return True
