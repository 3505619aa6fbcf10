"""A worker in the standard library alone: what a program in any language has to do to be tested by kvspec."""

import json
import sys

OPERATIONS = ["start", "allocate", "write", "read", "free", "overwrite", "trim", "finish"]


def token(prompt: int, position: int) -> int:
    """What stands at a position of a prompt: four prompts of a family agree on their first four tokens."""
    family, branch = divmod(prompt, 4)
    return (family * 1009 + position) * 4 + (branch if position >= 4 else 0)


class Pool:
    """The allocator under test is the free list; rows and contents are its caller's."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.blank, self.size = list(range(1, pages + 1)), page_size
        self.rows: dict[str, dict] = {}
        self.content: dict[int, int] = {}

    def slots(self, row: dict, start: int, stop: int) -> list[int]:
        """Where positions are: slot = page * page size + offset."""
        return [row["pages"][i // self.size] * self.size + i % self.size for i in range(start, stop)]

    def give_up(self, row: dict, start: int, stop: int) -> None:
        """Entries that were given up stay as holes."""
        self.blank += [page for page in row["pages"][start:stop] if page]
        row["pages"][start:stop] = [None] * len(row["pages"][start:stop])

    def run(self, op: str, row: str, **given) -> dict:
        """One operation, and what came of it."""
        if op == "start":
            self.rows[row] = {"prompt": given["prompt"], "length": 0, "pages": []}
            return {}
        mine = self.rows[row]
        if op == "allocate":
            old, new = mine["length"], mine["length"] + max(given["tokens"], 0)
            needed = -(-new // self.size) - len(mine["pages"])
            if needed > len(self.blank):
                return {"status": "refused"}
            taken, self.blank = self.blank[:needed], self.blank[needed:]
            mine["pages"] += taken
            mine["length"] = new
            return {"pages": taken, "slots": self.slots(mine, old, new)}
        if op in ("write", "read"):
            where = self.slots(mine, given["start"], given["stop"])
            if op == "read":
                return {"slots": where, "tokens": [self.content[slot] for slot in where]}
            for i, slot in enumerate(where, given["start"]):
                self.content[slot] = -1 - i if given["draft"] else token(mine["prompt"], i)
            return {"slots": where}
        if op == "free":
            self.give_up(mine, given["start"], given["stop"])
        elif op in ("trim", "finish"):
            mine["length"] = given.get("tokens", 0)
            kept = -(-mine["length"] // self.size)
            self.give_up(mine, kept, len(mine["pages"]))
            del mine["pages"][kept:]
        return {}  # `overwrite`: this caller hands out no buffer of its own that it could overwrite


def answer(request: dict) -> dict:
    """A request's program, on a fresh pool."""
    pool, outcomes = Pool(**request["configuration"]), []
    for operation in request["operations"]:
        outcome = pool.run(operation.pop("op"), **operation)
        outcomes.append({"status": "done", **outcome, "blank": list(pool.blank), "available": len(pool.blank)})
    return {"id": request["id"], "outcomes": outcomes}


print(
    json.dumps({"protocol": 1, "subject": "minimal", "version": "1", "capabilities": {"pool": OPERATIONS}}), flush=True
)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
