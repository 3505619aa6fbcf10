"""A program over an engine's real cache objects, with a toy model behind them: the half that is the same for all.

The other half is a `Driver`, one an engine. A question is `{"do": "caches", "layers": [layer, ...], "dtype": name,
"rows": n, "steps": [[name, number, ...], ...]}`; a layer is `[kind, {parameter: number}]`, or `["list", {}, [layer,
...]]`. The place of a layer is its path: `"0"`, and `"3.1"` inside a list. The answer is `{"calls": [answer, ...]}`:
one a step, and then one for each object, which takes one token more, so that what is wrong with it shows.

Objects are numbered as they come to be: 0 is there at the beginning, empty, of `rows` rows. The number of an object, of
a row, of a kept state is taken modulo how many there are. All numbers are 0 or more. The steps:

- `append o n`: n tokens for each row, in one chunk; `padded o n k`: row r gets 1 + (k + r * (k + 1)) % n of them, in
  one chunk with padding, as the engine has it. Row r's token at place j is `toy.token(step, r, j)`, where `step` is the
  number of the answer, from 0;
- `trim o n`: the last n tokens go; `reset o`: all go;
- `copy o`; `file o`, saved and loaded; `reblock o size`, cut into blocks of `size` positions and joined; `merge o p`,
  the rows of o and then those of p; `extract o r`, one row: each makes a new object;
- `state o`: what the cache hands out as its state is kept; `restore k`: a new object of the kept state k;
- `slice o a n`: positions a to a + n, kept; `read o`: all that is held now, kept;
- `export o`: all rows and states as bytes, in `exported`: `members`, what the cache is made of, as `kvspec.members` has
  it, and `parts`, base64 by path. `import o k`: a new object like o, of the k-th of the question's `given`, objects of
  `position` and `parts`; it is exported at once;
- `filter o mask`: rows r with bit r of the mask stay, or row mask % rows where that is none; `extend o p`: p's rows
  come behind o's; `repeat o n`: each row n times, side by side; `reorder o k`: row r becomes what row (k + r * (1 + k %
  3)) % rows was. These change o.

An answer has `op`, the step, and `status`:

- `done`; `nothing`: the step means nothing here (to extract from an object of one row), and nothing was done;
- `refused`: the engine says no, in its own way, and `why`; `misuse`: the driver does not pass it on, because the engine
  does not promise it for such an object (more tokens than a static cache has room for), and `why`;
- `raised`: any other exception, in `raised`, one line.

Where it is done it may have: `made`, the number of the new object; `lengths`, tokens that each row got; `rows`, which
rows stay, or where each comes from; what `Driver` says of appending, trimming and holding; `changed`, pairs [step,
path]: what that step handed out, which is not any more what it was. `final` is true behind the program's end.

Nothing here decides what is right.
"""

from base64 import b64decode, b64encode
from typing import Any

from kvspec_record import toy
from kvspec_record.caller import raised

MOST_ROWS = 16
"""Rows of one object: a step that would lead to more means nothing."""

Layers = list[Any]
Answer = dict[str, Any]
MAKING = ("copy", "file", "reblock", "merge", "extract", "restore")
"""Operations that make a new object."""


class Refused(Exception):
    """The engine refuses, in its own way: by what it returns, or by an exception that says so."""


class Nothing(Exception):
    """The step means nothing for this object."""


class Misuse(Exception):
    """The step is outside of what the engine promises for this object, by its state: the driver does not pass it on."""


class Driver:
    """An engine's half. An object is whatever stands for one cache of a whole model, with all its layers.

    A driver has the methods that its engine has a way for, and lists the steps in `operations`; `append` it must have.
    Each method does what the engine's own code does around a model, through the engine's functions. It raises
    `Refused`, `Nothing` or `Misuse`; any other exception is the engine's. None may change what is handed in, unless the
    engine does.
    """

    operations: tuple[str, ...] = ("append",)
    storing: tuple[str, ...] = ()
    """Kinds of layers that can be exported and imported; none if there is no way."""

    def fresh(self, layers: Layers, rows: int, dtype: str) -> Any:
        """An empty object."""
        raise NotImplementedError

    def rows(self, made: Any) -> int:
        """How many rows it has."""
        raise NotImplementedError

    def append(self, made: Any, tokens: list[list[int]]) -> Answer:
        """A forward step, each row with its own tokens; rows of different lengths are padded by the engine's rule.

        For each layer with keys and values: the model reads the position of each token from the cache, asks it for the
        mask, writes `toy.key(toy.content(token), position)` and `toy.value(toy.content(token))` for each token (for
        padding, any other content than 0), and lists what the mask lets each query see. For a recurrent one: each row's
        state is read from the cache, folded over the row's tokens with `toy.fold`, without those that the cache's own
        mask leaves out, and written back.

        `reads`: {path: [row][query] a flat list of content, position, content of the value, for each row of keys and
        values that the query sees, in any order}, where the queries are the row's own tokens without padding;
        `states`: {path: [row][entry] the state now}; `dtypes`: {path: name of what is stored}, if it can be told.
        A member that has both kinds of memory, or several, has paths of its own for them: `"2"` and `"2.conv"`.
        """
        raise NotImplementedError

    def trim(self, made: Any, count: int) -> Answer:
        """`count`: tokens that the engine says were taken off (all that were asked for, if it does not say);
        `trimmed`: {path: by how many the layer's own length has shrunk}, for layers that have one."""
        raise NotImplementedError

    def reset(self, made: Any) -> None:
        """Empty it."""
        raise NotImplementedError

    def copy(self, made: Any) -> Any:
        """A copy, by the engine's way (Python's `deepcopy`, if it names that)."""
        raise NotImplementedError

    def file(self, made: Any) -> Any:
        """Saved to a file and loaded; the file is gone then."""
        raise NotImplementedError

    def state(self, made: Any) -> Any:
        """What the cache hands out as its state, as it is: no copy is taken."""
        raise NotImplementedError

    def restore(self, state: Any) -> Any:
        """An object of a state, which the engine is handed as it was handed out."""
        raise NotImplementedError

    def slice(self, made: Any, start: int, stop: int) -> Any:
        """Positions [start, stop) of each layer that has keys and values by position, cut out of what it hands out."""
        raise NotImplementedError

    def read(self, made: Any) -> Any:
        """What the layers hand out as their keys and values now."""
        raise NotImplementedError

    def held(self, handed: Any) -> Answer:
        """What is in a state, a slice or a read, as it is now, decoded; called again and again to see it change.

        `held`: {path: [row] a flat list of content, position, content of the value}, in the order of positions, without
        padding and without what is behind the end; `states` and `dtypes` as for `append`.
        """
        raise NotImplementedError

    def reblock(self, made: Any, size: int) -> Any:
        """Its state cut into blocks of `size` positions, which are joined to a state, and an object of that."""
        raise NotImplementedError

    def exported(self, made: Any) -> tuple[list[Any], dict[str, bytes]]:
        """What a cache of one row is made of, as plain data of `kvspec.members`, and its parts by path: all rows, a
        ring in the order of its slots, a state."""
        raise NotImplementedError

    def imported(self, like: Any, parts: dict[str, bytes], position: int) -> Any:
        """An object of the same classes as another one, of such parts, through the engine's own way to restore."""
        raise NotImplementedError

    def merge(self, some: list[Any]) -> Any:
        """An object with the rows of all."""
        raise NotImplementedError

    def extract(self, made: Any, row: int) -> Any:
        """An object with one row."""
        raise NotImplementedError

    def filter(self, made: Any, rows: list[int]) -> None:
        """Keep these rows."""
        raise NotImplementedError

    def extend(self, made: Any, other: Any) -> None:
        """Put the rows of `other` behind those of `made`."""
        raise NotImplementedError

    def repeat(self, made: Any, times: int) -> None:
        """Each row so many times, side by side."""
        raise NotImplementedError

    def reorder(self, made: Any, order: list[int]) -> None:
        """Row r becomes what row order[r] was."""
        raise NotImplementedError


class Program:
    """The objects of a program, and what was handed out of them."""

    def __init__(self, driver: Driver, question: Answer) -> None:
        self.driver = driver
        self.objects = [driver.fresh(question["layers"], question["rows"], question["dtype"])]
        self.given: list[Answer] = question.get("given", [])
        self.states: list[Any] = []
        self.kept: list[tuple[int, Any, Answer]] = []  # the step, what was handed out, what was in it
        self.count = 0

    def run(self, op: list[Any]) -> Answer:
        """Do a step; the answer to it."""
        name, *numbers = op
        answer: Answer = {"op": op, "status": "done"}
        try:
            known = self.driver.operations + ("export", "import") * bool(self.driver.storing)
            if name not in known:
                raise Misuse(f"the engine has no way to {name}")
            answer |= getattr(self, f"_{name}", self._make)(name, *numbers) or {}
        except Refused as why:
            answer |= {"status": "refused", "why": str(why)}
        except Nothing as why:
            answer |= {"status": "nothing", "why": str(why)}
        except Misuse as why:
            answer |= {"status": "misuse", "why": str(why)}
        except Exception as error:
            answer |= {"status": "raised", "raised": raised(error)}
        changed = self._changed()
        self.count += 1
        return answer | ({"changed": changed} if changed else {})

    def _object(self, number: int) -> Any:
        return self.objects[number % len(self.objects)]

    def _room(self, rows: int) -> None:
        if not 1 <= rows <= MOST_ROWS:
            raise Nothing(f"no object has {rows} rows")

    def _append(self, name: str, o: int, n: int) -> Answer:
        made = self._object(o)
        return self._forward(made, [n] * self.driver.rows(made))

    def _padded(self, name: str, o: int, n: int, k: int) -> Answer:
        made = self._object(o)
        return self._forward(made, [1 + (k + r * (k + 1)) % n for r in range(self.driver.rows(made))])

    def _forward(self, made: Any, lengths: list[int]) -> Answer:
        tokens = [[toy.token(self.count, r, j) for j in range(length)] for r, length in enumerate(lengths)]
        return {"lengths": lengths, **self.driver.append(made, tokens)}

    def _trim(self, name: str, o: int, n: int) -> Answer:
        return self.driver.trim(self._object(o), n)

    def _reset(self, name: str, o: int) -> None:
        self.driver.reset(self._object(o))

    def _make(self, name: str, o: int, *numbers: int) -> Answer:
        """Copy, file, reblock."""
        return self._made(getattr(self.driver, name)(self._object(o), *numbers))

    def _merge(self, name: str, o: int, p: int) -> Answer:
        some = [self._object(o), self._object(p)]
        self._room(sum(map(self.driver.rows, some)))
        return self._made(self.driver.merge(some))

    def _extract(self, name: str, o: int, r: int) -> Answer:
        made = self._object(o)
        row = r % self.driver.rows(made)
        return {"rows": [row], **self._made(self.driver.extract(made, row))}

    def _restore(self, name: str, k: int) -> Answer:
        if not self.states:
            raise Nothing("no state was kept")
        return self._made(self.driver.restore(self.states[k % len(self.states)]))

    def _export(self, name: str, o: int) -> Answer:
        return self._exported(self._object(o))

    def _import(self, name: str, o: int, k: int) -> Answer:
        given = self.given[k]
        parts = {path: b64decode(data) for path, data in given["parts"].items()}
        made = self.driver.imported(self._object(o), parts, given["position"])
        return {**self._exported(made), **self._made(made)}

    def _exported(self, made: Any) -> Answer:
        members, parts = self.driver.exported(made)
        return {"exported": {"members": members, "parts": {at: b64encode(data).decode() for at, data in parts.items()}}}

    def _made(self, made: Any) -> Answer:
        self.objects.append(made)
        return {"made": len(self.objects) - 1}

    def _state(self, name: str, o: int) -> Answer:
        self.states.append(self.driver.state(self._object(o)))
        return self._keep(self.states[-1])

    def _slice(self, name: str, o: int, start: int, n: int) -> Answer:
        return self._keep(self.driver.slice(self._object(o), start, start + n))

    def _read(self, name: str, o: int) -> Answer:
        return self._keep(self.driver.read(self._object(o)))

    def _keep(self, handed: Any) -> Answer:
        held = self.driver.held(handed)
        self.kept.append((self.count, handed, held))
        return held

    def _filter(self, name: str, o: int, mask: int) -> Answer:
        made = self._object(o)
        count = self.driver.rows(made)
        rows = [r for r in range(count) if mask >> r & 1] or [mask % count]
        self.driver.filter(made, rows)
        return {"rows": rows}

    def _extend(self, name: str, o: int, p: int) -> None:
        if o % len(self.objects) == p % len(self.objects):
            raise Nothing("an object is not put behind itself")
        self._room(self.driver.rows(self._object(o)) + self.driver.rows(self._object(p)))
        self.driver.extend(self._object(o), self._object(p))

    def _repeat(self, name: str, o: int, n: int) -> Answer:
        made = self._object(o)
        self._room(self.driver.rows(made) * n)
        rows = [r for r in range(self.driver.rows(made)) for _ in range(n)]
        self.driver.repeat(made, n)
        return {"rows": rows}

    def _reorder(self, name: str, o: int, k: int) -> Answer:
        made = self._object(o)
        count = self.driver.rows(made)
        order = [(k + r * (1 + k % 3)) % count for r in range(count)]
        self.driver.reorder(made, order)
        return {"rows": order}

    def _changed(self) -> list[list[Any]]:
        """What was handed out and is not what it was, and is taken from now on for what it is."""
        changed: list[list[Any]] = []
        for number, (step, handed, before) in enumerate(self.kept):
            now = self.driver.held(handed)
            if now != before:
                self.kept[number] = step, handed, now
                parts = [(now.get(part, {}), before.get(part, {})) for part in {*now, *before}]
                paths = {path for some, other in parts for path in {*some, *other} if some.get(path) != other.get(path)}
                changed += [[step, path] for path in sorted(paths)]
        return changed


def run(driver: Driver, question: Answer) -> list[Answer]:
    """The answers to the steps, and then one token more for each object."""
    try:
        program = Program(driver, question)
    except Exception as error:
        return [{"op": ["fresh"], "status": "raised", "raised": raised(error)}]
    answers = [program.run(step) for step in question["steps"]]
    for number in range(len(program.objects)):
        answers.append(program.run(["append", number, 1]) | {"final": True})
    return answers
