"""A tokenizer of bytes: ids 0-255 are bytes, 256 begins a sequence, 257 is unused."""

import pytest

from prunebench.data.codec import TextCodec


@pytest.fixture(scope="session")
def codec() -> TextCodec:
    return TextCodec(
        encode=lambda text: list(text.encode()),
        decode=lambda ids: bytes(i for i in ids if i < 256).decode(errors="replace"),
        vocab_size=258,
        bos_id=256,
    )
