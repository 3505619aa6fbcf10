"""Which subject a command runs: one of kvspec's own, or an engine's release with its options."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from kvspec_cli.errors import BadInput, unknown

if TYPE_CHECKING:
    from kvspec_diff.sources import Own, Release

OWN = ("reference", "torch")

SubjectOption = Annotated[str | None, Parameter(help="One of kvspec's own: reference or torch.")]
EngineOption = Annotated[str | None, Parameter(help="An installed engine release, such as sglang==0.5.17.")]
PlantOption = Annotated[str | None, Parameter(help="A fault to plant into the engine, to see that it is found.")]
AllocatorOption = Annotated[str | None, Parameter(help="Only this allocator: token or paged.")]
PartOption = Annotated[str | None, Parameter(help="Only this part of the engine: pool or radix.")]
SortOption = Annotated[bool | None, Parameter(help="With, or without, sorting of freed pages.")]
SegmentsOption = Annotated[bool | None, Parameter(help="Only frees by segment, or none.")]
HostileOption = Annotated[bool | None, Parameter(help="With, or without, a caller that reuses its buffers at once.")]


class Asked(NamedTuple):
    """What the options name: exactly one of `subject` and `engine`."""

    subject: str
    engine: str
    version: str
    options: dict[str, Any]
    plants: tuple[str, ...]

    @property
    def name(self) -> str:
        """`torch`, `sglang==0.5.17`."""
        return self.subject or f"{self.engine}=={self.version}"

    @property
    def flags(self) -> str:
        """The options that ask for this again."""
        words = [f"--subject {self.subject}" if self.subject else f"--engine {self.name}"]
        for name, value in self.options.items():
            flag = "part" if name == "subject" else name
            words.append(f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag} {value}")
        return " ".join([*words, *(f"--plant {plant}" for plant in self.plants)])


def asked(subject: str | None, engine: str | None, plant: str | None, options: dict[str, Any]) -> Asked:
    """Check that the options go together; nothing is started."""
    chosen = {name: value for name, value in options.items() if value is not None}
    if engine is None:
        if subject is not None and subject not in OWN:
            raise unknown("subject", subject, OWN)
        if chosen or plant:
            raise BadInput("only an engine has options and planted faults: give --engine, such as sglang==0.5.17")
        return Asked(subject or "torch", "", "", {}, ())
    if subject is not None:
        raise BadInput("give --subject or --engine, not both")
    from kvspec_diff.engines import EXAMPLE, find, parse
    from kvspec_diff.recipes import recipe_for

    name, version = parse(engine)
    if name != EXAMPLE[0] and not recipe_for(name, version).adapter:
        raise BadInput(f"{engine} cannot be tested yet, it is there for `kvspec bench pages`: give another --engine")
    find(name, version)
    return Asked("", name, version, chosen, (plant,) if plant else ())


def opened(which: Asked) -> "Own | Release":
    """What has the targets: in a `with`, after which an engine's worker is ended."""
    from kvspec_diff.sources import OPTIONS, Own, Release

    if which.engine and which.engine not in OPTIONS:
        what = "capacity" if which.engine == "vllm" else "caches"
        raise BadInput(
            f"{which.engine} has no pool to run programs on: `kvspec diff --engine {which.name}` compares its {what}"
        )
    return Release(which.engine, which.version, which.plants) if which.engine else Own(which.subject)
