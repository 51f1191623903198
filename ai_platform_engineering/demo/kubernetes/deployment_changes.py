"""Changes of a deployment as the API receives them, and what they do to the estate."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.demo.estate.cluster_objects import RESTART_ANNOTATION, ClusterObjects, Json
from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.estate import Estate, UnknownRevision

MAX_REPLICAS = 20
MAX_SETTINGS = 100
_MAX_DEPTH = 30
_ACTOR = "kubernetes"


class InvalidChange(ValueError):
    """A change that the API refuses as invalid: a wrong value, or one that the demo's cluster cannot make."""


@dataclass(frozen=True, slots=True)
class DeploymentChange:
    """What a new spec changes; None is what stays as it is."""

    replicas: int | None = None
    settings: dict[str, str] | None = None
    version: str | None = None
    restart: bool = False

    def apply(self, estate: Estate, service: CompanyService) -> None:
        """Raises InvalidChange."""
        if self.version is not None:
            try:
                estate.deploy(service, self.version, _ACTOR)
            except UnknownRevision as error:
                raise InvalidChange(f"spec.template.spec.containers[0].image: {error}") from error
        if self.settings is not None or self.restart:
            estate.restart(service)
        estate.change_deployment(service, replicas=self.replicas, settings=self.settings)


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    return _merge(current, patch, _replace_list, 0)


def merge_by_name(current: Any, patch: Any) -> Any:
    """A strategic merge or an applied configuration: lists of named items are merged by name."""
    return _merge(current, patch, _merge_named_items, 0)


class DeploymentEditor:
    """Finds out what another spec of a service's deployment changes."""

    def __init__(self, estate: Estate, service: CompanyService) -> None:
        self._estate = estate
        self._service = service
        self._current: Json = ClusterObjects(estate, service).deployment()["spec"]

    def patch(self, spec: Json) -> DeploymentChange:
        return self.replace(merge_patch(self._current, spec))

    def strategic_patch(self, spec: Json) -> DeploymentChange:
        return self.replace(merge_by_name(self._current, spec))

    def apply(self, spec: Json) -> DeploymentChange:
        """Server-side apply: what was set by hand and is no longer in the configuration is removed."""
        base = copy.deepcopy(self._current)
        manual_settings = self._estate.deployment(self._service).settings
        container = _container(base)
        container["env"] = [item for item in container["env"] if item["name"] not in manual_settings]
        return self.replace(merge_by_name(base, spec))

    def replace(self, spec: Json) -> DeploymentChange:
        """Raises InvalidChange, also where the demo's cluster cannot make a change that a real one could."""
        expected = copy.deepcopy(self._current)
        spec = {"replicas": expected["replicas"], **spec}
        change = DeploymentChange(
            replicas=self._read_replicas(spec, expected),
            settings=self._read_settings(spec, expected),
            version=self._read_version(spec, expected),
            restart=self._read_restart(spec, expected),
        )
        path = _find_difference(expected, spec, "spec")
        if path is not None:
            raise InvalidChange(
                f"{path}: this demo cluster changes only spec.replicas and, of the template, the annotation"
                f" {RESTART_ANNOTATION}, the image's tag and the values in env"
            )
        return change

    def _read_replicas(self, spec: Json, expected: Json) -> int | None:
        replicas = check_replicas(spec["replicas"])
        if replicas == expected["replicas"]:
            return None
        expected["replicas"] = replicas
        return replicas

    def _read_settings(self, spec: Json, expected: Json) -> dict[str, str] | None:
        environment = _read_environment(_container(spec).get("env", []))
        revision = self._estate.deployment(self._service).current.revision
        manifest = self._estate.files(self._service).manifest_settings(revision.sha)
        missing = [name for name in manifest if name not in environment]
        if missing:
            raise InvalidChange(f"env: {missing[0]} is set by the service's manifest and cannot be removed")
        settings = {name: value for name, value in environment.items() if manifest.get(name) != value}
        _container(expected)["env"] = _container(spec).get("env", [])
        if settings == self._estate.deployment(self._service).settings:
            return None
        return settings

    def _read_version(self, spec: Json, expected: Json) -> str | None:
        image = str(_container(spec).get("image", ""))
        current_image = _container(expected)["image"]
        name, _, version = image.rpartition(":")
        if image == current_image or name != current_image.rpartition(":")[0]:
            return None  # another registry is a difference that is refused
        _container(expected)["image"] = image
        if self._estate.files(self._service).find_revision(version) is None:
            raise InvalidChange(f"spec.template.spec.containers[0].image: there is no image {image}")
        return version

    def _read_restart(self, spec: Json, expected: Json) -> bool:
        annotations = _template_annotations(spec)
        current_annotations = _template_annotations(expected)
        restarted_at = annotations.get(RESTART_ANNOTATION)
        if restarted_at == current_annotations.get(RESTART_ANNOTATION):
            return False
        if not isinstance(restarted_at, str):
            return False  # its removal is a difference that is refused
        expected["template"]["metadata"]["annotations"] = current_annotations | {
            RESTART_ANNOTATION: restarted_at
        }
        return True


def check_replicas(value: Any) -> int:
    """Raises InvalidChange."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidChange("spec.replicas: Invalid value: must be greater than or equal to 0")
    if value > MAX_REPLICAS:
        raise InvalidChange(f"spec.replicas: this demo cluster has room for {MAX_REPLICAS} pods of a service")
    return value


def _container(spec: Json) -> Json:
    try:
        (container,) = spec["template"]["spec"]["containers"]
    except (KeyError, TypeError, ValueError):
        raise InvalidChange("spec.template.spec.containers: this demo cluster runs one container") from None
    if not isinstance(container, dict):
        raise InvalidChange("spec.template.spec.containers[0]: must be an object")
    return container


def _template_annotations(spec: Json) -> Json:
    metadata = spec["template"].get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _read_environment(items: Any) -> dict[str, str]:
    environment: dict[str, str] = {}
    if not isinstance(items, list) or len(items) > MAX_SETTINGS:
        raise InvalidChange(f"env: must be a list of at most {MAX_SETTINGS} items")
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InvalidChange("env: each item needs a name")
        if set(item) - {"name", "value"} or not isinstance(item.get("value", ""), str):
            raise InvalidChange(f"env: {item['name']} must have a string as its value")
        environment[item["name"]] = item.get("value", "")
    return environment


def _merge(
    current: Any, patch: Any, merge_lists: Callable[[list[Any], list[Any], int], Any], depth: int
) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidChange("the patch is nested too deeply")
    if isinstance(patch, list) and isinstance(current, list):
        return merge_lists(current, patch, depth)
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value, merge_lists, depth + 1)
    return merged


def _replace_list(current: list[Any], patch: list[Any], depth: int) -> Any:
    return patch


def _merge_named_items(current: list[Any], patch: list[Any], depth: int) -> Any:
    if not all(isinstance(item, dict) and "name" in item for item in (*current, *patch)):
        return patch
    merged = {item["name"]: item for item in current}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item["name"], None)
            continue
        merged[item["name"]] = _merge(merged.get(item["name"]), item, _merge_named_items, depth + 1)
    return list(merged.values())


def _find_difference(expected: Any, actual: Any, path: str) -> str | None:
    """The path of the first value that is another one; None where there is none."""
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return None if expected == actual else path
    for key in {**expected, **actual}:
        if key not in expected or key not in actual:
            return f"{path}.{key}"
        difference = _find_difference(expected[key], actual[key], f"{path}.{key}")
        if difference is not None:
            return difference
    return None
