"""A target that a file describes (`--target my-target.toml`): whatever speaks Kafka's protocol, in an image of its own.

docs/writing-a-target.md says what the file holds. Each node's configuration is made of the file's template; what to run
stands at its head, as comments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import jinja2
import jinja2.meta
import jinja2.sandbox
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.cluster import Cluster, Node
from harness.errors import BadArguments, RuntimeUnavailable
from harness.targets.kafka import secrets
from harness.targets.kafka.target import Kafka
from harness.targets.kafka_api.properties import as_file, node_specs, quorum_voters, roles
from harness.targets.security import given, has_sasl
from harness.targets.target import DATA, ClusterPlan, ImageStore, Issued, NodeSpec, Package, Promise
from harness.targets.timing import Timing
from spark_history.regular import require_regular

_IMAGE: Final = Path(__file__).with_name("image")
_NODE: Final = "#chaos.node="


#: Variables of templates: see _of() and Described.configurations().
_VARIABLES: Final = (
    "cluster_id", "voters", "replication_factor", "min_insync_replicas", "data", "settings",
    "id", "name", "role", "roles", "rack", "host", "port", "listeners", "security",
)  # fmt: skip


def _matches(form: str, what: str) -> AfterValidator:
    def check(value: str) -> str:
        if re.fullmatch(form, value) is None:
            raise ValueError(f"{value!r} is no {what}")
        return value

    return AfterValidator(check)


def _template(text: str) -> str:
    environment = jinja2.sandbox.SandboxedEnvironment()
    try:
        unknown = jinja2.meta.find_undeclared_variables(environment.parse(text)) - {*_VARIABLES}
    except jinja2.TemplateError as error:
        raise ValueError(f"it is no template: {error}") from None
    if unknown:
        raise ValueError(f"{min(unknown)!r} is undefined; there are {', '.join(_VARIABLES)}")
    return text


_Template = Annotated[str, AfterValidator(_template)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Promise(_Strict):
    sentence: str
    lossy_shutdowns: int
    source: str


class _Ports(_Strict):
    broker: int = 9092
    controller: int = 9093


class _Timing(_Strict):
    """In seconds: see harness.targets.timing.Timing."""

    session: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 9.0
    lag: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    start: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 6.0


class Description(_Strict):
    """What the file holds. image: a tag. properties: a Jinja template of a node's configuration. command, format: of a
    shell. data: below /data. formatted: a file in it that is there once it is formatted. inside: what lies on its
    disks: "kafka", Kafka's files, or "": nobody knows."""

    summary: str
    image: Annotated[str, _matches(r"[a-z0-9][a-z0-9._/:-]*(:[\w.-]+)?(@sha256:[0-9a-f]+)?", "tag of an image")]
    properties: _Template
    command: _Template
    data: str = f"{DATA}/logs"
    format: _Template = ""
    formatted: str = "meta.properties"
    memory: Annotated[str, _matches(r"[1-9]\d*[bkmg]?", "size such as 1g or 512m")] = "1g"
    inside: Literal["kafka", ""] = "kafka"
    promise: _Promise
    ports: _Ports = _Ports()
    timing: _Timing = _Timing()
    settings: dict[str, str] = {}


class Described(Kafka):
    """path: of the file."""

    takes: ClassVar = "FILE"
    runtimes: ClassVar = frozenset({"docker"})  # its package is an image
    options: ClassVar = frozenset()
    unsupported: ClassVar = {**Kafka.unsupported, "membership:upgrade": "the file describes one release"}

    def __init__(self, path: str) -> None:
        super().__init__()
        self.name = path
        self._description = _read(Path(path))
        self.summary = self._description.summary
        self.inside = self._description.inside  # type: ignore[misc]
        below = Path(self._description.data).relative_to(DATA)
        self._logs = "" if below == Path() else str(below)

    def promise(self, plan: ClusterPlan) -> Promise:
        return Promise(**self._description.promise.model_dump())

    def timing(self, plan: ClusterPlan) -> Timing:
        return Timing(**self._description.timing.model_dump())

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        """The file itself was read."""
        if not given.is_secured(plan.clients):
            return
        if _is_issued(plan):
            yield from secrets.problems(plan)
            if not self._takes_security:
                yield (
                    f"--clients: the properties of {self.name} have no {{{{ security }}}}, by which its nodes would be "
                    "told; or give ssl.ca, the authority of certificates that its image has"
                )
        elif has_sasl(given.protocol_of(plan.clients)) and "sasl.username" not in plan.clients:
            yield "--clients ssl.ca is of an image with users of its own; give sasl.username and sasl.password too"

    @property
    def _takes_security(self) -> bool:
        found = jinja2.meta.find_undeclared_variables(self._environment.parse(self._description.properties))
        return "security" in found

    def issue(self, plan: ClusterPlan, nodes: Sequence[Node], folder: Path) -> Issued:
        return super().issue(plan, nodes, folder) if _is_issued(plan) else Issued(given.resolve(plan.clients))

    def check_setting(self, name: str, value: str) -> None:
        """Its nodes know."""

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        return ()

    async def ignored(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Sequence[str]:
        """They are variables of its templates."""
        return ()

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        ports = self._description.ports
        return [
            replace(
                spec, port=ports.broker if spec.role == "broker" else ports.controller,
                controller_port=None if spec.controller_port is None else ports.controller,
            )
            for spec in node_specs(plan)
        ]  # fmt: skip

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        image = self._description.image
        if not images.has(image):
            tell(f"Asking a registry for {image}")
            repository, _, version = image.rpartition(":")
            if not images.pull(*((repository, version) if repository and "/" not in version else (image, "latest"))):
                raise RuntimeUnavailable(
                    f"There is no image {image}, which {self.name} names: the engine has none, and no registry gave "
                    "it; build it, or load it."
                )
        return self._package()

    def packages(self) -> Sequence[Package]:
        return [self._package()]

    def _package(self) -> Package:
        return Package(
            _IMAGE / "described.Dockerfile", {"described.sh": _IMAGE / "described.sh"}, "described",
            self._description.image, self._description.memory, "256m", traces=False, tested=self._description.summary,
        )  # fmt: skip

    def fetch(self, tell: Callable[[str], object]) -> str:
        raise BadArguments(f"{self.name} names the image {self._description.image}; docker pull fetches it")

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        common = {
            "cluster_id": cluster_id, "voters": quorum_voters(nodes), "replication_factor": plan.replication_factor,
            "min_insync_replicas": plan.min_insync_replicas, "data": str(Path(self._description.data)),
            "settings": {**self._description.settings, **plan.settings},
        }  # fmt: skip
        return {node.name: self._configuration({**common, **_of(node, plan)}) for node in nodes}

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        line = next(line for line in configuration.splitlines() if line.startswith(_NODE))
        data = Path(DATA, folder, Path(self._description.data).relative_to(DATA))
        return self._configuration({**json.loads(line.removeprefix(_NODE)), "id": node_id, "data": str(data)})

    def _configuration(self, values: Mapping[str, Any]) -> str:
        """values: of the template's variables."""
        described = self._description
        head = {
            "data": values["data"], "formatted": described.formatted,
            "command": self._rendered(described.command, values), "format": self._rendered(described.format, values),
        }  # fmt: skip
        lines = [f"#chaos.{name}={' '.join(text.split())}" for name, text in head.items()]
        return "\n".join([*lines, _NODE + json.dumps(values), self._rendered(described.properties, values)]) + "\n"

    @cached_property
    def _environment(self) -> jinja2.Environment:
        return jinja2.sandbox.SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)

    def _rendered(self, template: str, values: Mapping[str, Any]) -> str:
        try:
            return self._environment.from_string(template).render(values)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise BadArguments(
                f"{self.name}: a template of it cannot be filled in: {error}; there are {', '.join(values)}"
            ) from None


def _is_issued(plan: ClusterPlan) -> bool:
    """Are certificates and users made for the run? Not if the image has certificates of its own."""
    return given.is_secured(plan.clients) and "ssl.ca" not in plan.clients


def _of(node: Node, plan: ClusterPlan) -> dict[str, Any]:
    is_secured = _is_issued(plan)
    security = secrets.listeners(plan) if is_secured and node.role == "broker" else {}
    return {
        "id": node.id, "name": node.name, "role": node.role, "roles": roles(node), "rack": node.rack,
        "host": node.address[0], "port": node.address[1], "listeners": secrets.addresses(node, is_secured),
        "security": as_file(security).rstrip("\n"),
    }  # fmt: skip


def _read(path: Path) -> Description:
    try:
        require_regular(path)
        found = Description(**tomllib.loads(path.read_text()))
    except FileNotFoundError:
        raise BadArguments(f"--target {path} does not exist; give a file that describes a target") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        problem = first["msg"].removeprefix("Value error, ")
        raise BadArguments(f"--target {path}: {where}: {problem[0].lower()}{problem[1:]}") from None
    except (OSError, ValueError, TypeError) as error:
        raise BadArguments(f"--target {path} cannot be read: {error}") from None
    for name in ("command", "format"):
        if "\n" in getattr(found, name).strip():
            raise BadArguments(f"--target {path}: {name} has several lines; it is one, with && or ; between its parts")
    if not Path(found.data).is_relative_to(DATA) or ".." in Path(found.data).parts:
        raise BadArguments(f"--target {path}: data: {found.data} is not below {DATA}, where each node's volume is")
    return found
