"""A speculative decoder step by step: what it emits, and how a late request joins it (J1-J5)."""

from collections.abc import Sequence

import pytest
from kvspec.operations import Misuse
from kvspec_reference.drain import TOKENS, Batch, Cache, Decoder, HandOffFailed, Model, Row, Sampled, prefill

PROMPT, LATE = (3, 1, 4), (1, 5)
MODEL = Model(seed=9)
PLAIN = MODEL.plain(PROMPT, 20)


def right(row: Row, count: int) -> list[int]:
    """A draft model that is always right."""
    start = len(row.emitted) + len(row.queue)
    return [sampled.token for sampled in PLAIN[start : start + count]]


def wrong(row: Row, count: int) -> list[int]:
    """One that is never."""
    return [(token + 1) % TOKENS for token in right(row, count)]


def half(row: Row, count: int) -> list[int]:
    """One whose first token is right."""
    return [*right(row, 1), *wrong(row, count)[1:]]


def begun(draft: object = right, drafts: int = 3, pause: int = 2) -> Decoder:
    decoder = Decoder(MODEL, draft, drafts, pause)  # type: ignore[arg-type]
    decoder.begin("a", PROMPT)
    return decoder


def emitted(steps: Sequence[dict[str, Sampled]], name: str = "a") -> list[Sampled]:
    return [step[name] for step in steps if name in step]


def names(decoder: Decoder) -> list[str]:
    return [str(name) for name, *_ in decoder.take_actions()]


def test_a_token_depends_on_all_before_it_and_on_its_position() -> None:
    tokens = [each.token for each in PLAIN]
    assert len(set(tokens)) > 5
    assert MODEL.plain(PROMPT, 20) == PLAIN != Model(seed=8).plain(PROMPT, 20)
    cache = Cache()
    assert MODEL.feed(cache, [*PROMPT, *tokens[:6]])[-1] == PLAIN[6]
    assert MODEL.feed(cache, [tokens[5]])[-1].token != tokens[6], "fed twice"
    assert MODEL.feed(Cache(), [*PROMPT, *tokens[:4], tokens[5]])[-1] != PLAIN[6], "one is lost"


@pytest.mark.parametrize("draft", [right, wrong, half])
def test_speculative_decoding_emits_what_plain_decoding_does(draft: object) -> None:
    decoder = begun(draft)
    assert emitted([decoder.step() for _ in range(15)]) == PLAIN[:15]


def test_what_a_cycle_costs_and_leaves() -> None:
    """A step that finds nothing queued verifies; what was refused is cut, and all is fed but the last token."""
    decoder = begun(half)
    row = decoder.row
    assert row is not None
    assert (emitted([decoder.step()]), names(decoder)) == (PLAIN[:1], ["begin", "speculate", "emit"])
    decoder.step()
    assert decoder.take_actions() == [("cycle", 1), ("emit",)]
    assert list(row.queue) == PLAIN[2:3]
    assert row.cache.rows == [*PROMPT, *(each.token for each in PLAIN[:2])]


def test_where_nothing_is_accepted_plain_steps_follow() -> None:
    decoder = begun(wrong, pause=2)
    steps = [decoder.step() for _ in range(5)]
    assert names(decoder)[3:] == ["cycle", "park", "decode", "decode", "speculate", "emit", "cycle", "park", "decode"]
    assert emitted(steps) == PLAIN[:5]


@pytest.mark.parametrize(("before", "drained"), [(0, 0), (1, 0), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_a_late_request_joins_when_at_most_one_token_is_queued(before: int, drained: int) -> None:
    """With drafts of 3 all accepted there are 3, 2, 1, 0 tokens queued after steps 2, 3, 4, 5."""
    decoder = begun()
    steps = [decoder.step() for _ in range(before)]
    decoder.arrive("b", LATE)
    names(decoder)
    steps += [decoder.step() for _ in range(drained)]
    assert names(decoder) == ["emit"] * drained
    assert decoder.row is not None
    queued = len(decoder.row.queue)
    steps.append(decoder.step())
    assert names(decoder) == ["take" if queued else "forward", "join", "decode"]
    assert (queued <= 1, decoder.row, decoder.arrival, decoder.batch.pinned) == (True, None, None, False)
    steps += [decoder.step() for _ in range(4)]
    assert emitted(steps) == PLAIN[: len(steps)]
    assert emitted(steps, "b") == MODEL.plain(LATE, 5)


def test_a_hand_off_that_fails_leaves_a_plain_stream_until_one_succeeds() -> None:
    decoder = begun()
    steps = [decoder.step() for _ in range(4)]
    decoder.arrive("b", LATE)
    names(decoder)
    steps += [decoder.step(raises=True) for _ in range(3)]
    assert names(decoder) == ["take", "fail"] * 3
    assert decoder.row is not None
    assert (decoder.speculates, decoder.batch.pinned, decoder.batch.rows) == (False, False, [])
    steps += [decoder.step() for _ in range(3)]
    assert emitted(steps) == PLAIN[: len(steps)]


def test_the_pin_and_the_row_come_back_whatever_is_raised() -> None:
    class Breaks(Batch):
        def merge(self, rows: Sequence[Row], raises: bool = False) -> None:
            raise MemoryError("no room")

    decoder = begun()
    decoder.batch = Breaks()
    row = decoder.row
    decoder.arrive("b", LATE)
    with pytest.raises(MemoryError):
        decoder.step()
    assert (decoder.batch.pinned, decoder.row) == (False, row)


def test_what_is_cancelled_is_kept_by_nobody_and_what_is_finished_is_cut() -> None:
    decoder = begun()
    for _ in range(3):
        decoder.step()
    decoder.arrive("b", LATE)
    decoder.cancel()
    assert (decoder.kept, decoder.live(), decoder.arrival) == ([], None, None)
    decoder.begin("c", PROMPT)
    steps = [decoder.step() for _ in range(3)]
    row = decoder.row
    assert row is not None
    assert len(row.cache.rows) > len(PROMPT) + 3, "it is ahead of what was emitted"
    decoder.finish()
    ((tokens, cache),) = decoder.kept
    assert list(tokens) == cache.rows == [*PROMPT, *(each.token for each in emitted(steps, "c"))]


def test_in_the_batch_it_ends_alone_or_is_left_alone() -> None:
    decoder = begun()
    decoder.arrive("b", LATE)
    steps = [decoder.step()]
    decoder.leave()
    steps += [decoder.step() for _ in range(6)]
    assert emitted(steps) == PLAIN[:7]
    assert "cycle" in names(decoder)
    decoder.arrive("b", LATE)
    while decoder.row is not None:
        decoder.step()
    decoder.cancel()
    assert (decoder.batch.rows, decoder.kept) == ([], [])


def test_a_request_that_goes_before_it_joined() -> None:
    decoder = begun()
    decoder.arrive("b", LATE)
    decoder.withdraw()
    names(decoder)
    assert emitted([decoder.step() for _ in range(3)]) == PLAIN[:3]
    assert names(decoder)[0] == "speculate"


def test_misuse() -> None:
    decoder = Decoder(MODEL, right, 3, 2)
    for call in (decoder.step, decoder.cancel, decoder.finish, decoder.leave, decoder.withdraw):
        with pytest.raises(Misuse):
            call()
    with pytest.raises(Misuse, match="waits for a stream"):
        decoder.arrive("b", LATE)
    decoder.begin("a", PROMPT)
    with pytest.raises(Misuse, match="a is still there"):
        decoder.begin("c", PROMPT)
    decoder.arrive("b", LATE)
    with pytest.raises(Misuse, match="one at a time"):
        decoder.arrive("c", LATE)
    with pytest.raises(Misuse, match="pinned"):
        decoder.batch.merge([])
    decoder.batch.pinned = True
    with pytest.raises(HandOffFailed):
        decoder.batch.merge([prefill(MODEL, "b", LATE)], raises=True)
    assert decoder.batch.rows == []
