"""The cache classes of transformers, unmodified, on a CPU.

A request to the worker is a batch: a list of questions `{"do": "caches", ...}`, see `kvspec_record.caches`; the kinds
of layers are in `kvspec_record.transformers_model`.
"""

import logging
import os
import warnings
from importlib.metadata import version
from typing import Any, ClassVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch

from kvspec_record import caches, transformers_plants
from kvspec_record.caller import Caller, RequestError, one_line
from kvspec_record.planting import plant
from kvspec_record.transformers_caches import Caches


class Adapter:
    """The installed release, with the faults that were asked for."""

    name = "transformers"
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {"caches": Caches.operations}
    page_sizes: ClassVar[dict[str, tuple[int, ...]]] = {}
    plants = tuple(transformers_plants.PLANTS)
    probes = ()

    def __init__(self, plants: tuple[str, ...]) -> None:
        """Import what is asked for, plant the faults. Raises `RequestError` for an unknown one."""
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        self.version = version("transformers")
        self.driver = Caches()
        for each in plants:
            plant(each, transformers_plants.PLANTS)

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """It has no pool of pages that could be driven by itself."""
        raise RequestError("the adapter of transformers takes batches, no programs on a pool of pages")

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """It has no probes."""
        raise RequestError("the adapter of transformers has no probes")

    def batch(self, questions: list[Any]) -> list[dict[str, Any]]:
        """One answer a question; a question that cannot be asked is answered `{"error": "one line"}`."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Any) -> dict[str, Any]:
        try:
            if question["do"] == "caches":
                with torch.inference_mode():
                    return {"calls": caches.run(self.driver, question)}
        except Exception as error:
            return {"error": one_line(error)}
        return {"error": f"unknown question {question['do']!r}"}
