"""What a preemption made free resumes the preempted request, which is preempted again at the next step."""

from z3 import BoolVal

from kvspec.fairness import Fairness


class ResumesAtOnce(Fairness, variant="vllm#25538", breaks="A7"):
    """Admission does not ask for whom the room was made."""

    def sated(s):
        return BoolVal(True)
