import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.fingerprint import canonical_json, sha256_arrays, sha256_json, sha256_text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def test_canonical_json_is_sorted_dense_and_keeps_letters():
    value = {"b": [1, 2.5, None, True], "a": {"é": "ü", "d": 0.1}}
    assert canonical_json(value) == '{"a":{"d":0.1,"é":"ü"},"b":[1,2.5,null,true]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_numbers_that_json_lacks_are_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, np.float32(1), [len]])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(TypeError):
        canonical_json(value)


def test_hashes_are_sha256_in_hexadecimal():
    assert sha256_text("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_text("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert sha256_json({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert sha256_json({"b": 1, "a": 2}) == sha256_text('{"a":2,"b":1}')


def test_an_array_is_its_type_its_shape_and_its_bytes():
    expected = hashlib.sha256(b'["<i4",[2]]' + b"\x01\x00\x00\x00\x02\x00\x00\x00")
    assert sha256_arrays(np.array([1, 2], dtype="<i4")) == expected.hexdigest()
    assert sha256_arrays(np.array([1, 2], dtype=">i4")) == expected.hexdigest()
    two = expected.copy()
    two.update(b'["|b1",[1,1]]' + b"\x01")
    assert sha256_arrays(np.array([1, 2], dtype="<i4"), np.array([[True]])) == two.hexdigest()


def test_arrays_that_differ_in_anything_have_other_hashes():
    a = np.arange(6, dtype="<i4")
    variants = [
        (a,),
        (a.reshape(2, 3),),
        (a.reshape(3, 2),),
        (a.astype("<i8"),),
        (a[:3], a[3:]),
        (a[::-1],),
        (),
    ]
    assert len({sha256_arrays(*arrays) for arrays in variants}) == len(variants)


def test_memory_layout_does_not_matter():
    a = np.arange(12).reshape(3, 4)
    assert sha256_arrays(np.asfortranarray(a)) == sha256_arrays(a)
    assert sha256_arrays(np.arange(24)[::2].reshape(3, 4) // 2) == sha256_arrays(a)


@given(values)
def test_canonical_json_survives_a_round_trip(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), values, min_size=1))
def test_the_order_of_keys_does_not_matter(value):
    assert sha256_json(dict(reversed(value.items()))) == sha256_json(value)
