"""The resource types of the demo's cluster, API discovery, and what its one account may do with each."""

from dataclasses import dataclass

from ai_platform_engineering.demo.estate.cluster_objects import Json

USER = "demo"
METRICS_GROUP = "metrics.k8s.io"
_READ = ("get", "list")
_CHANGE = ("patch", "update")


@dataclass(frozen=True, slots=True)
class KubernetesResource:
    """A resource type, or a subresource such as `deployments/scale`; `verbs` are those that are allowed."""

    group: str
    version: str
    name: str
    kind: str
    verbs: tuple[str, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def plural(self) -> str:
        return self.name.partition("/")[0]


SECRETS = KubernetesResource("", "v1", "secrets", "Secret", ())
RESOURCES = (
    KubernetesResource("", "v1", "configmaps", "ConfigMap", _READ, short_names=("cm",)),
    KubernetesResource("", "v1", "events", "Event", _READ, short_names=("ev",)),
    KubernetesResource("", "v1", "namespaces", "Namespace", _READ, namespaced=False, short_names=("ns",)),
    KubernetesResource("", "v1", "nodes", "Node", _READ, namespaced=False, short_names=("no",)),
    KubernetesResource("", "v1", "nodes/proxy", "NodeProxyOptions", ("get",), namespaced=False),
    KubernetesResource("", "v1", "pods", "Pod", (*_READ, "delete"), short_names=("po",)),
    KubernetesResource("", "v1", "pods/log", "Pod", ("get",)),
    KubernetesResource("", "v1", "pods/exec", "PodExecOptions", ()),
    SECRETS,
    KubernetesResource("", "v1", "services", "Service", _READ, short_names=("svc",)),
    KubernetesResource(
        "apps", "v1", "deployments", "Deployment", (*_READ, *_CHANGE), short_names=("deploy",)
    ),
    KubernetesResource("apps", "v1", "deployments/scale", "Scale", ("get", *_CHANGE)),
    KubernetesResource("apps", "v1", "replicasets", "ReplicaSet", _READ, short_names=("rs",)),
    KubernetesResource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        ("create",),
        namespaced=False,
    ),
    KubernetesResource(METRICS_GROUP, "v1beta1", "nodes", "NodeMetrics", _READ, namespaced=False),
    KubernetesResource(METRICS_GROUP, "v1beta1", "pods", "PodMetrics", _READ),
)
# What exists beside the verbs that are allowed: a client sees the type, and the request is forbidden.
_VERBS_SHOWN = ("create", "delete", "get", "list", "patch", "update")


def find_resource(group: str, version: str, name: str) -> KubernetesResource | None:
    for resource in RESOURCES:
        if (resource.group, resource.version, resource.name) == (group, version, name):
            return resource
    return None


def show_version() -> Json:
    return {
        "major": "1",
        "minor": "33",
        "gitVersion": "v1.33.1",
        "gitCommit": "demo",
        "gitTreeState": "clean",
        "platform": "linux/amd64",
    }


def list_api_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def list_groups() -> Json:
    groups = []
    for name, version in sorted({(resource.group, resource.version) for resource in RESOURCES}):
        if not name:
            continue
        group_version = {"groupVersion": f"{name}/{version}", "version": version}
        groups.append({"name": name, "versions": [group_version], "preferredVersion": group_version})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def list_resources(group: str, version: str) -> Json | None:
    """The resource types of one group; None where there is no such group."""
    resources = [item for item in RESOURCES if (item.group, item.version) == (group, version)]
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": resources[0].api_version,
        "resources": [_describe(resource) for resource in resources],
    }


def review_access(review: Json) -> Json:
    """The answer to a SelfSubjectAccessReview."""
    spec = review.get("spec")
    attributes = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    allowed = isinstance(attributes, dict) and _is_allowed(attributes)
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec or {},
        "status": {"allowed": allowed},
    }


def _is_allowed(attributes: Json) -> bool:
    name = str(attributes.get("resource", ""))
    if attributes.get("subresource"):
        name = f"{name}/{attributes['subresource']}"
    for resource in RESOURCES:
        if resource.group == attributes.get("group", "") and resource.name == name:
            return attributes.get("verb") in resource.verbs
    return False


def _describe(resource: KubernetesResource) -> Json:
    verbs = resource.verbs or _VERBS_SHOWN
    description: Json = {
        "name": resource.name,
        "singularName": "" if "/" in resource.name else resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(verbs),
    }
    if resource.short_names:
        description["shortNames"] = list(resource.short_names)
    if resource.kind == "Scale":
        description |= {"group": "autoscaling", "version": "v1"}
    return description
