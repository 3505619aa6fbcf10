"""What became of an operation, kept on the device until somebody asks. Unverified on CUDA."""

import torch

from kvspec_torch.errors import Misuse

REASONS = (
    "fine",
    "the null page is nobody's",
    "unknown",
    "was freed already in the open group",
    "is blank",
    "is published and has no holder",
    "is named twice in one call",
    "is live already",
    "is not live",
    "asks for less than nothing or more than there is",
    "asks for more than was announced",
    "gave up its last page, and the new positions would begin there",
    "holds no page there",
    "holds a published page there",
    "is not the page's only holder, copy it first",
    "is settled there, a draft must not overwrite it",
    "is not settled there",
    "is live there, so it is not the caller's to overwrite",
    "cannot be overwritten with its own pages",
    "holds no page to overwrite with",
    "does not end where the shared pages begin",
    "holds a page there that is not published",
    "has other tokens there than the shared page",
    "is in use already",
    "has pinned this page already",
    "is not in use",
    "has too few entries",
    "has drafts that are not settled",
    "asks for more than the limit",
    "asks for more or less than was announced",
    "has no table to give back",
    "has a slot that is not where its position belongs",
)

DONE, REFUSED, MISUSE = 0, 1, 2


WHAT = ("page", "row", "pin")

OPERATIONS = (
    "start", "allocate", "write", "read", "free", "overwrite", "trim", "finish", "publish", "share", "replace", "copy",
    "pin", "unpin", "release", "reserve", "advance",
    "gather", "scatter",
)  # fmt: skip


class Verdict:
    """Judges the elements of a batch: of each, the first reason found against it, and against what."""

    def __init__(self, what: str, ids: torch.Tensor) -> None:
        self.found = torch.zeros(3, ids.numel(), dtype=torch.int64, device=ids.device)  # reason, index in WHAT, id
        self.about(what, ids)

    def about(self, what: str, ids: torch.Tensor) -> None:
        """What comes next is against these pages, rows or pins, int64[batch]."""
        self.what, self.ids = what, ids
        self._what = torch.full_like(ids, WHAT.index(what))

    def against(self, bad: torch.Tensor, reason: str) -> None:
        """`bad`, bool[batch] or bool[batch, width], tells where `reason` holds."""
        if bad.dim() > 1:
            bad = bad.flatten(1).any(1)
        new = (self.found[0] == 0) & bad
        this = torch.stack((torch.full_like(self.ids, REASONS.index(reason)), self._what, self.ids))
        self.found = torch.where(new, this, self.found)


class Report:
    """The status of the last operation and the first misuse, both on the device."""

    def __init__(self, device: torch.device) -> None:
        self.status = torch.zeros((), dtype=torch.int64, device=device)
        self.first = torch.zeros(5, dtype=torch.int64, device=device)  # reason, in WHAT, id, in OPERATIONS, call
        self._calls = 0  # operations since the last check

    def settle(self, operation: str, verdict: Verdict, refused: torch.Tensor | None = None) -> torch.Tensor:
        """Whether the operation is to be done, a bool scalar; if not, it is reported."""
        this, wrong = self.count(), verdict.found[0] != 0
        misuse = wrong.any()
        if wrong.numel():
            at = wrong.long().argmax().reshape(1)
            call = torch.stack((torch.full_like(at, OPERATIONS.index(operation)), torch.full_like(at, this)))
            found = torch.cat((verdict.found.index_select(1, at), call)).flatten()
            self.first.copy_(torch.where(misuse & (self.first[0] == 0), found, self.first))
        status = torch.where(misuse, MISUSE, DONE)
        if refused is not None:
            status = torch.where(~misuse & refused, REFUSED, status)
        self.status.copy_(status)
        return status == DONE

    def done(self) -> None:
        """An operation is done: there was nothing to judge on the device."""
        self.count()
        self.status.fill_(DONE)

    def count(self) -> int:
        """How many operations there were since the last check; one more is counted."""
        self._calls += 1
        return self._calls - 1

    def check(self) -> None:
        """Raise the first misuse since the last check. The host waits and reads here, and nowhere else."""
        reason, what, id_, operation, call = self.first.tolist()
        self.first.zero_()
        self._calls = 0
        if reason:
            place = f"{OPERATIONS[operation]} (call {call} since the last check)"
            raise Misuse(f"{place}: {WHAT[what]} {id_}: {REASONS[reason]}")
