"""mlx-lm's cache classes on a CPU, unmodified.

A request to the worker is a batch: a list of questions, each answered on its own.

- `{"do": "caches", "layers": ..., "dtype": ..., "rows": ..., "steps": [...]}`: see `kvspec_record.caches` and, for the
  layers, `kvspec_record.mlx_lm_caches`.
"""

import os
from importlib.metadata import version
from typing import Any, ClassVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from kvspec_record import caches, mlx_lm_caches, mlx_lm_plants
from kvspec_record.caller import Caller, RequestError, one_line
from kvspec_record.planting import plant


class Adapter:
    """The installed release, with the faults that were asked for."""

    name = "mlx-lm"
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {"caches": mlx_lm_caches.MlxLm.operations}
    page_sizes: ClassVar[dict[str, tuple[int, ...]]] = {}
    plants = tuple(mlx_lm_plants.PLANTS)
    probes = ()

    def __init__(self, plants: tuple[str, ...]) -> None:
        """Plant the faults. Raises `RequestError` for an unknown one, or one that this release has no place for."""
        self.version = version("mlx-lm")
        for each in plants:
            plant(each, mlx_lm_plants.PLANTS)

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """It has no pool of pages."""
        raise RequestError("mlx-lm's adapter takes batches, no programs on a pool of pages")

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """It has no probes."""
        raise RequestError("mlx-lm's adapter has no probes")

    def batch(self, questions: list[Any]) -> list[dict[str, Any]]:
        """One answer a question; what the engine raises is the answer `{"error": "one line"}`."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Any) -> dict[str, Any]:
        try:
            if question["do"] == "caches":
                return {"calls": caches.run(mlx_lm_caches.MlxLm(), question)}
        except Exception as error:
            return {"error": one_line(error)}
        return {"error": f"unknown question {question['do']!r}"}
