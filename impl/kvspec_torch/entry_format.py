"""One block as one safetensors file, and the names of blocks (E1, E2, E5, E6).

The header is JSON: `__metadata__` first, then the tensors in the order in which they lie in the payload, the widest
elements first, then by path. Metadata are strings: the format and its version, the layout's signature, the keys of the
entry and of its parent, which block of the prefix it is and how many tokens it has, whether the states are there, each
window's offset, and a checksum, xxh3-128, over all bytes of the file but the checksum's own. There is one way to write
an entry: a reader writes the header again from what it says and compares. What differs is a miss with a reason.

So a header does not say how much is read, or where: the file's size has to be what the layout makes it.
"""

import re
import struct
from collections.abc import Sequence
from hashlib import sha256

import xxhash

from kvspec_torch.blocks import Block, fit_block
from kvspec_torch.disk.files import buffer
from kvspec_torch.disk.frames import DIGEST, START, Entry, Frame, Frames, Header, Miss, entry, memory, views
from kvspec_torch.disk.older import judge_other, upgraded
from kvspec_torch.errors import Misuse
from kvspec_torch.tokens import Tokens, tokens_of

__all__ = ["Entry", "Format", "Header", "Miss", "chain", "checksum", "digest", "extended", "key_of"]

VERSION = "3"
CHECKSUM = slice(8 + len(START), 8 + len(START) + 32)
"""Where in a file the checksum stands."""

METADATA = re.compile(
    re.escape(START) + rb'([0-9a-f]{32})","format":"kvspec","index":"([0-9]{1,19})","key":"([0-9a-f]{64})",'
    rb'(?:"offset\.[0-9.]+":"[0-9]+",)*"parent":"([0-9a-f]{64}|)","signature":"([0-9a-f]{64})","stateful":"([01])",'
    rb'"tokens":"([0-9]{1,19})","version":"3"\}'
)
"""What every header of this version begins with."""


# Names.


def key_of(parent: str | None, tokens: Tokens, signature: str) -> str:
    """The name of the block of `tokens` after `parent`: a chain of SHA-256, the same everywhere (E6)."""
    return _key_of(parent, tokens_of(tokens), signature)


def _key_of(parent: str | None, tokens: list[int], signature: str) -> str:
    """The same, of tokens that were checked."""
    before = b"\0" if parent is None else b"\1" + bytes.fromhex(digest("parent", parent))
    named = b"kvspec key\0" + bytes.fromhex(digest("signature", signature)) + before
    return sha256(named + struct.pack(f">{len(tokens)}Q", *tokens)).hexdigest()


def chain(tokens: Tokens, block_size: int, signature: str) -> list[str]:
    """The keys of the whole blocks of a prefix, each one's parent the one before it."""
    if type(block_size) is not int or block_size < 1:
        raise Misuse(f"block_size: {block_size!r}, at least 1 is wanted")
    return extended([], tokens_of(tokens), block_size, signature)


def extended(keys: Sequence[str], tokens: list[int], block_size: int, signature: str) -> list[str]:
    """The same, of tokens that were checked, where the first keys are known."""
    found = list(keys)
    for start in range(len(keys) * block_size, len(tokens) // block_size * block_size, block_size):
        found.append(_key_of(found[-1] if found else None, tokens[start : start + block_size], signature))
    return found


def digest(what: str, value: object) -> str:
    """The value, if it is a SHA-256 in lower case. Raises `Misuse` otherwise."""
    if type(value) is not str or not DIGEST.fullmatch(value):
        raise Misuse(f"{what}: {value!r} is no SHA-256 in lower case")
    return value


# Bytes: writing an entry, and reading it.


class Format(Frames):
    """Writes and reads the entries of one layout."""

    def write(self, key: str, parent: str | None, block: Block) -> memoryview:
        """The bytes of an entry: its tensors are copied once. Raises `Misuse` for what could not be read back."""
        digest("key", key)
        if parent is not None:
            digest("parent", parent)
        fit_block(self, block)
        if not self.legal(block.index):
            raise Misuse(f"block {block.index}: no prefix is so long")
        for path, part in block.parts.items():
            if part.is_meta:
                raise Misuse(f"block {block.index}: {path}: is on meta, there are no bytes to save")
        frame = self.frame(block.index, block.stateful)
        head = self.head(frame, b"0" * 32, key, parent, block.index, block.stateful)
        data = buffer(len(head) + frame.payload)
        data[: len(head)] = head
        payload = data[len(head) :]
        for tensor in frame.tensors:  # not by torch, whose threads are slower here than the copy itself
            payload[tensor.start : tensor.stop] = memory(block.parts[tensor.path].cpu().contiguous())
        data[CHECKSUM] = checksum([data[: CHECKSUM.start], data[CHECKSUM.stop :]])
        return data

    def judge(self, head: bytes, size: int) -> Header | Miss:
        """What a file of `size` bytes says of itself, from its first `longest` bytes; no checksum is looked at."""
        if size < 10 or len(head) < 10:
            return Miss("short", f"{size} bytes, the shortest entry has more")
        found = METADATA.match(head, 8)
        if found is None:
            return judge_other(self, head, size)
        index, key, parent, signature, stateful, tokens = (each.decode() for each in found.groups()[1:])
        if signature != self.signature:
            return Miss("signature", f"signature {signature}, {self.signature} is wanted")
        if int(tokens) != self.layout.block_size or not self.legal(int(index)):
            return Miss("header", f"block {index}, of {tokens} tokens")
        if stateful == "0" and self.stateless:
            return Miss("header", "lacks states, and the layout has none")
        frame = self.frame(int(index), stateful == "1")
        wanted = self.head(frame, found[1], key, parent or None, int(index), stateful == "1")
        if not head.startswith(wanted):
            return Miss("header", "is not written in the one way")
        if size != len(wanted) + frame.payload:
            return Miss("length", f"{size} bytes, {len(wanted) + frame.payload} are wanted")
        return Header(key, parent or None, size, len(wanted), int(index), stateful == "1")

    def read(self, data: memoryview, key: str, index: int | None = None) -> Entry | Miss:
        """The entry of this key in `data`, with everything checked, or why there is none; its tensors are views.

        An entry of version 2 is upgraded; `index` has to say which block of its prefix it is. Never raises for what
        `data` holds, and allocates no more than a few times its length.
        """
        header = self.judge(bytes(data[: self.longest]), len(data))
        if isinstance(header, Miss):
            return header
        if header.key != key:
            return Miss("key", f"key {header.key}, {key} is wanted")
        if header.older:
            return upgraded(self, data, header, index)
        found = checksum([data[: CHECKSUM.start], data[CHECKSUM.stop :]])
        if found != data[CHECKSUM]:
            return Miss("damaged", f"checksum {found.decode()}, the header says {bytes(data[CHECKSUM]).decode()}")
        assert header.index is not None
        frame = self.frame(header.index, bool(header.stateful))
        return entry(header, self.layout.block_size, views(frame, data[header.start :]))

    def head(self, frame: Frame, check: bytes, key: str, parent: str | None, index: int, stateful: bool) -> bytes:
        """The one way to write what is before the payload."""
        offset = (index + 1) * self.layout.block_size
        offsets = "".join(f'"offset.{path}":"{offset}",' for path in self.windows if stateful)
        fields = (
            f'","format":"kvspec","index":"{index}","key":"{key}",{offsets}"parent":"{parent or ""}",'
            f'"signature":"{self.signature}","stateful":"{int(stateful)}","tokens":"{self.layout.block_size}",'
            f'"version":"{VERSION}"}}'
        )
        text = START + check + fields.encode() + frame.text
        text = text.ljust(-(-len(text) // 8) * 8)
        return len(text).to_bytes(8, "little") + text


def checksum(pieces: Sequence[memoryview]) -> bytes:
    """Over all bytes of a file but the checksum's own (E5)."""
    found = xxhash.xxh3_128()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest().encode()
