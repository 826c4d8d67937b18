"""A digest inside a parquet file that covers every other byte of it.

Pages can have checksums of their own, but the footer, which says what they mean, has none, and a reader that
is given a broken footer may do anything. So the digest is checked before anything is parsed. It lies between
the last column and the footer, where readers, who find columns by their offsets, never look.
"""

from __future__ import annotations

import hashlib

_MARK = b"roofseal"
_DIGEST_BYTE = 16
_SEAL_BYTE = len(_MARK) + _DIGEST_BYTE


def sealed(data: bytes) -> bytes:
    """A whole parquet file with its seal put in."""
    cut = _footer_at(data)
    return data[:cut] + _MARK + _digest(data) + data[cut:]


def is_broken(data: bytes) -> bool:
    """Whether a file's bytes differ from those that were sealed. Where there is no seal, none is broken."""
    cut = _footer_at(data)
    begin = cut - _SEAL_BYTE
    if data[begin : begin + len(_MARK)] != _MARK:
        return False
    return data[cut - _DIGEST_BYTE : cut] != _digest(data[:begin] + data[cut:])


def _footer_at(data: bytes) -> int:
    """Where the footer begins: a parquet file's last 8 bytes are the footer's length and a magic word."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTE).digest()
