"""How each engine's releases are installed: one table of pip arguments, each row tried on a machine without a GPU."""

import msgspec


class EngineError(Exception):
    """An engine that cannot be installed, found or started; the text is one line: what, where, what to do."""


class Recipe(msgspec.Struct, frozen=True):
    """The steps that install the releases `oldest` to `newest` (both included) of `engine`.

    Each step is a title and the arguments of one `pip install`; `{version}` stands for the release. Packages named in
    `pinned` are a constraint on every step, so that no later step brings its own. `adapter` names the worker's adapter,
    "" where there is none; `space` is in bytes.
    """

    engine: str
    oldest: str
    newest: str
    adapter: str
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    pinned: tuple[str, ...] = ()
    space: int = 3 * 2**30


def _sglang(oldest: str, newest: str, transformers: str, more: str) -> Recipe:
    steps = {
        "the engine itself": "--no-deps sglang=={version}",
        "torch": "torch==2.13.0",
        "libraries that would bring another torch": "--no-deps torchvision==0.28.0 triton apache-tvm-ffi==0.1.11 "
        f"compressed-tensors gguf loguru dill sentencepiece sniffio partial-json-parser {more}",
        "libraries": "numpy orjson psutil pybase64 requests packaging pillow starlette msgspec pydantic pyzmq tqdm "
        f"ipython aiohttp openai==2.8.0 transformers=={transformers}",
    }
    return Recipe(
        engine="sglang",
        oldest=oldest,
        newest=newest,
        adapter="sglang",
        steps=tuple((title, tuple(arguments.split())) for title, arguments in steps.items()),
        pinned=("torch==2.13.0",),
    )


def _vllm(version: str) -> Recipe:
    steps = {
        "torch": "torch==2.13.0",
        "libraries": "transformers>=5.16.1,<5.21 pydantic msgspec cbor2 psutil pyzmq regex numpy cloudpickle aiohttp "
        "urllib3 requests oss-harmony openai pillow>=13 pybase64 cachetools uvloop py-cpuinfo prometheus_client "
        "fastapi<0.137 partial-json-parser llguidance<1.8 einops",
        "libraries that would bring another torch": "--no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.11",
        "the engine itself": "--no-deps vllm=={version}",
    }
    return Recipe(
        engine="vllm",
        oldest=version,
        newest=version,
        adapter="vllm",
        steps=tuple((title, tuple(arguments.split())) for title, arguments in steps.items()),
        pinned=("torch==2.13.0",),
    )


def _mlx_lm(version: str, mlx: str) -> Recipe:
    return Recipe(
        engine="mlx-lm",
        oldest=version,
        newest=version,
        adapter="mlx-lm",
        steps=(("the engine itself", (f"mlx[cpu]=={mlx}", "mlx-lm=={version}")),),
        space=2**30,
    )


def _transformers(version: str) -> Recipe:
    return Recipe(
        engine="transformers",
        oldest=version,
        newest=version,
        adapter="transformers",
        steps=(
            ("torch", ("torch==2.13.0",)),
            ("the engine itself", ("transformers=={version}",)),
            ("a library that quantizes", ("--no-deps", "hqq==0.2.8.post1", "termcolor")),
        ),
        pinned=("torch==2.13.0",),
        space=2 * 2**30,
    )


RECIPES: tuple[Recipe, ...] = (
    _sglang("0.5.17", "0.5.18", transformers="5.12.1", more="xgrammar einops"),
    _sglang("0.5.23", "0.5.23", transformers="5.19.0", more=""),
    _vllm("0.26.0"),
    _vllm("0.33.0"),
    _mlx_lm("0.31.3", mlx="0.31.2"),
    _mlx_lm("0.32.2", mlx="0.32.4"),
    _transformers("5.24.0"),
)


def release(version: str) -> tuple[int, ...]:
    """`(0, 5, 17)` for `0.5.17`; `EngineError` for what is not numbers with dots between."""
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise EngineError(f"{version!r} is no release: write numbers with dots between, such as 0.5.17")
    return tuple(int(part) for part in parts)


def recipe_for(engine: str, version: str, recipes: tuple[Recipe, ...] = RECIPES) -> Recipe:
    """The recipe whose range holds the release; `EngineError` names those there are."""
    known = [recipe for recipe in recipes if recipe.engine == engine]
    if not known:
        names = ", ".join(sorted({recipe.engine for recipe in recipes}))
        raise EngineError(f"unknown engine {engine!r}: kvspec can install {names}")
    wanted = release(version)
    for recipe in known:
        if release(recipe.oldest) <= wanted <= release(recipe.newest):
            return recipe
    ranges = ", ".join(r.oldest if r.oldest == r.newest else f"{r.oldest} to {r.newest}" for r in known)
    raise EngineError(f"no recipe was tried for {engine} {version}: there are recipes for {ranges}")
