"""The laws of the subjects that stand here, by id: what each says, and the test that stands in where no proof can.

Kinds are told by how a machine states a law: of every state, of a step, or derived from others. Laws about real bytes
and buffers (D5, D6, S2, B1, B2) have no proof; the test named here stands in for one.
"""

LAWS = {
    "R1": "A read at a settled position returns the content of the request's own prefix there.",
    "R2": "From its beginning to its end a read sees one content, of a page that stays.",
    "R3": "The null page is never handed out, freed, counted or published, and no settled read resolves to it.",
    "R4": "Only what was written since the page was handed out is read.",
    "R5": "Settled positions shrink only by a named truncation.",
    "R6": "The address that a position is written at is the one that it is read at.",
    "O1": "Every page is blank, cached, released or held, or null; blank is disjoint from all others.",
    "O2": "No page is freed twice, and none that somebody holds.",
    "O3": "A page's holder count is the number of row entries and reads that name it.",
    "O4": "A page with a holder is not blank, not queued for freeing, not evictable.",
    "O5": "An allocation hands out distinct blank pages, or refuses when there are too few, which changes nothing.",
    "O6": "What is available is what is blank; neither pending frees nor a refusal raise it.",
    "O7": "Writing needs sole ownership: a shared or cached page is copied first.",
    "O8": "Copy on write leaves the other holders' content unchanged.",
    "O9": "When nothing lives and the cache is empty, every page is blank.",
    "O10": "Freeing part of a page never frees a page that still holds live positions.",
    "O11": "Rows and geometry agree; cells of different owners are disjoint.",
    "D1": "What a group frees at its end is what was named, when it was named.",
    "D2": "A page deferred twice in a group is freed once.",
    "D3": "A deferred page is not handed out before its group ends; a group ends once, and loses nothing.",
    "D4": "Groups do not nest.",
    "D5": "A buffer that the pool hands out is the caller's; one that it takes is copied if kept.",
    "D6": "A backup of the pool's state holds the pending group.",
    "C1": "A table has the blocks that its kind needs for what is computed, new and ahead, cut at the limit.",
    "C2": "What a drafter writes past its step is reserved.",
    "C3": "Warm-up, scheduler and allocator compute the same number, for every step.",
    "C4": "What steps that have not retired may write is reserved; drafts are cut at the limit.",
    "C5": "One block fewer does not do.",
    "C6": "More positions need no fewer blocks, and one more at most one more.",
    "C7": "A recurrent group has its running states and those for drafts, in every mode.",
    "C8": "No more is accepted than was drafted, and one more is emitted, unless the request stops.",
    "C9": "What comes back is what was reserved, not only what was computed.",
    "A1": "Who is admitted is allowed what it was admitted for.",
    "A2": "A refused admission changes nothing.",
    "A3": "The oldest request is neither passed for memory nor preempted; a blocked one is passed so often.",
    "A4": "Preemption returns every page once, and no emitted token is lost.",
    "A5": "Start-up leaves room for requests in every pool, or refuses to start.",
    "A6": "A request that can never be served is turned away, alone.",
    "A7": "Preempting and resuming go on only with tokens emitted between.",
    "S1": "A recurrent state is used at the position that it was recorded at, and found there.",
    "S2": "A state at a position is that of computing its tokens anew, and so is all that comes after it.",
    "S3": "A live state is never stored as the state of another position.",
    "S4": "What was read from a live cache stays as it was.",
    "B1": "What is loaded is what was saved: values, shapes, states, members that are absent or empty.",
    "B2": "What is restored and what it was saved from go on alike: the same reads, the same refusals.",
    "B3": "The slices of a prefix join to the whole, whatever the block size.",
    "B4": "A stored prefix restores to its length or is refused; a missing middle yields the longest one before it.",
    "B5": "All members of a restored cache stand at the claimed length.",
    "B6": "One block more costs a block more.",
    "B7": "A window's ring keeps its offset: each position is read where it was written.",
    "B8": "A trim shortens every member or none.",
    "B10": "What a block says that it holds is all there.",
    "E1": "A signature names all that changes the meaning of the bytes: another one is refused, the same one is not.",
    "E2": "An unknown version is a miss, never a guess.",
    "E3": "An upgrade keeps the meaning, and is done once.",
    "E4": "One chain has one layout.",
    "E5": "What is read has the key that was asked for, and is not damaged.",
    "E6": "A key is a function of what it names, the same on every host.",
    "T1": "A crash leaves the old entry or the new one, whole; what is temporary is never found.",
    "T2": "All bytes on a disk count against its budget, and can be reclaimed.",
    "T3": "Every tier gives the same answer; an entry that is being written can be read.",
    "T4": "What was acknowledged is found after a crash, until it is evicted.",
    "T5": "Of two writes of one key the later wins.",
    "T6": "What is refused or fails changes nothing else, and nothing is lost silently.",
    "T7": "The last copy goes together with its index entry.",
    "J1": "What is emitted is what decoding without the join emits; no token is lost, repeated or fed twice.",
    "J2": "Nobody joins while tokens are queued, but for the last one, which is the next input.",
    "J3": "A cache has one owner at every step; cancelling exports nothing.",
    "J4": "An arrival joins within k + 1 steps and one for each hand-off that failed; no cycle starts while it waits.",
    "J5": "The pin that holds the batch is released, even by a step that raises.",
}

COMPARED = {
    "P1": "A prefix that is found has the tokens that were asked for.",
    "P9": "What was in a cache before it was emptied cannot be found.",
    "P12": "A prefix that is found is whole blocks, and short of the last token.",
    "B9": "Merging rows and extracting one gives it back: its dtype, its padding, its kept prefix, its absent slots.",
    "P15": "Replaying the events that were published yields what can be found.",
}
"""Laws of subjects that no machine states yet: engines are compared with them, and nothing is proved."""

OF_CAPACITY = tuple(law for law in LAWS if law[0] == "C")
OF_SCHEDULERS = tuple(law for law in (*LAWS, *COMPARED) if law[0] in "ARP")
"""What an engine's tables, and what its scheduler is held against."""

OF_CACHES = ("R1", "S1", "S2", "S3", "S4", "B1", "B2", "B3", "B4", "B5", "B7", "B8", "B9")
"""What an engine's cache classes are held against."""

STANDS_IN = {
    "D5": "impl/tests/test_deferred_free.py::test_what_is_handed_out_is_the_callers",
    "D6": "impl/tests/test_deferred_free.py::test_a_backup_holds_the_open_group_and_stays_as_it_is",
    "S2": "diff_tests/tests/test_representing.py::test_a_state_is_that_of_computing_anew",
    "B1": "diff_tests/tests/test_representing.py::test_what_is_loaded_is_what_was_saved",
    "B2": "diff_tests/tests/test_representing.py::test_what_is_restored_goes_on_like_what_it_was_saved_from",
}
