"""Why a file is no entry is said in the store's own words."""

import json
from pathlib import Path

import pytest
from kvspec.members import Layout, Part, Plain
from kvspec_torch.block_store import BlockStore
from kvspec_torch.entry_format import Format, Miss, key_of

# Its header may be long, since the layout's is.
LAYOUT = Layout("toy", 2, tuple(Plain((Part("k" * 30, (2,), "float16"),)) for _ in range(80)))
FORMAT = Format(LAYOUT)
KEY = key_of(None, [1, 2], LAYOUT.signature)
FIELDS = {
    "checksum": "0" * 64, "format": "kvspec", "key": KEY, "parent": "", "signature": LAYOUT.signature, "tokens": "2",
    "version": "2",
}  # fmt: skip
DEEP = "[" * 4000 + "]" * 4000
SAID = f'{{"__metadata__":{json.dumps(FIELDS)},"layer_0_{"k" * 30}":{{"dtype":'
TEXTS = {
    "digits": ('{"a":' + "1" * 5000 + "}", "a number has 5000 digits"),
    "recursion": ('{"a":' + DEEP + "}", "is nested too deeply"),
    "no JSON": ('{"a":,}', "is no JSON from character 5 on"),
    "twice": ('{"a":1,"a":1}', "a field is there twice"),
    "float": ('{"a":1.5}', "1.5 is no integer"),
    "constant": ('{"a":NaN}', "NaN is no integer"),
    "UTF-8": ('{"a":"\udcff"}', "byte 6 is no UTF-8"),
    "a deep shape": (SAID + '"F16","shape":' + "[" * 300 + "]" * 300 + ',"data_offsets":[0,8]}}', ""),
    "a deep dtype": (SAID + "[" * 900 + "]" * 900 + ',"shape":[1,2,2],"data_offsets":[0,8]}}', ""),
}


@pytest.mark.parametrize("case", TEXTS)
def test_why_a_header_cannot_be_read(case: str, tmp_path: Path) -> None:
    text, wanted = TEXTS[case]
    head = text.encode(errors="surrogateescape")
    assert len(head) < FORMAT.longest
    data = len(head).to_bytes(8, "little") + head + bytes(8)
    found = FORMAT.read(memoryview(data), KEY, 0)
    assert isinstance(found, Miss)
    if wanted:
        assert (found.reason, found.text) == ("header", f"cannot be read: {wanted}")
    (tmp_path / f"{KEY}.safetensors").write_bytes(data)
    with BlockStore(tmp_path, LAYOUT, budget=2**20) as store:
        found = store.load(KEY)
        assert isinstance(found, Miss)
        assert len(found.text) < 300
        assert not any(word in found.text for word in ("sys.", "recursion", "codec", "delimiter", "line 1"))
        assert store.restore([1, 2]).position == 0
