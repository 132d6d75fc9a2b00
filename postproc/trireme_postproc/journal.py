# SPDX-License-Identifier: Apache-2.0
"""A run file as it will be once the journal beside it is applied, for reading only.

trireme replaces pages of RUN_DIR/run.h5 in place; what replaces them is in run.h5.journal before (src/records/h5/journal.hpp has the format and
the rules, which are those of this module). Without the journal, a run that was killed while it wrote, or that writes at this moment,
shows some old pages and some new ones.
"""

import io
import os
import stat

import numpy as np

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
PAGE = 4096
MAGIC = 0x314C4E524A455254  # "TREJRNL1"
HEADER = np.dtype([("magic", "<u8"), ("pages", "<i8"), ("end", "<i8"), ("hash", "<u8")])
ENTRY = np.dtype([("page", "<i8"), ("before", "u1", PAGE), ("after", "u1", PAGE)])

_MASK = (1 << 64) - 1
_PRIME1, _PRIME2, _PRIME3, _PRIME4, _PRIME5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                                               0x27D4EB2F165667C5)


class ChangedError(OSError):
    """The file was written while it was read: what was read before and what would be read now do not belong together."""


def _rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane, word):
    return _rotated((lane + word * _PRIME2) & _MASK, 31) * _PRIME1 & _MASK


def xxh64(data, seed=0):
    """XXH64, as src/foundation/base/hash.cpp has it."""
    whole = len(data) // 32 * 32
    result = (seed + _PRIME5) & _MASK
    if whole:
        lanes = [(seed + _PRIME1 + _PRIME2) & _MASK, (seed + _PRIME2) & _MASK, seed, (seed - _PRIME1) & _MASK]
        for words in np.frombuffer(data, "<u8", whole // 8).reshape(-1, 4).tolist():
            lanes = [_round(lane, word) for lane, word in zip(lanes, words)]
        result = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _PRIME1 + _PRIME4) & _MASK
    result = (result + len(data)) & _MASK
    rest = bytes(data[whole:])
    while len(rest) >= 8:
        result = (_rotated(result ^ _round(0, int.from_bytes(rest[:8], "little")), 27) * _PRIME1 + _PRIME4) & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        result = (_rotated(result ^ int.from_bytes(rest[:4], "little") * _PRIME1 & _MASK, 23) * _PRIME2 + _PRIME3) & _MASK
        rest = rest[4:]
    for byte in rest:
        result = _rotated(result ^ byte * _PRIME5 & _MASK, 11) * _PRIME1 & _MASK
    result = (result ^ result >> 33) * _PRIME2 & _MASK
    result = (result ^ result >> 29) * _PRIME3 & _MASK
    return result ^ result >> 32


def hash_of(header, entries):
    """Of a journal, from its header with 0 in the hash's place and its entries, both as bytes."""
    return xxh64(entries, xxh64(header[:24] + bytes(8)))


def read_all(descriptor, count, offset):
    """`count` bytes at `offset`, zeros after the end of the file."""
    parts = []
    while count > 0 and (part := os.pread(descriptor, count, offset)):
        parts.append(part)
        count, offset = count - len(part), offset + len(part)
    return b"".join(parts) + bytes(count)


def journal_of(path):
    """Beside the path; of a link to a run file, beside the file."""
    beside = path + ".journal"
    return beside if os.path.lexists(beside) else os.path.realpath(path) + ".journal"


class View(io.RawIOBase):
    """The bytes of a run file, with the pages of its journal in place. For h5py.File().

    A read raises ChangedError once the file was written since the beginning. With `whole` everything is read at once, which takes
    memory and less time, and later changes do no harm.

    What is noticed: trireme writes a new journal before it replaces a page, so a journal that is still the same tells that nothing was
    replaced but what it has. What lies after the end that it states may change, and is not shown. Without a journal the file's size and
    time of change must stay.
    """

    def __init__(self, path, whole=False):
        super().__init__()
        self.changed = False  # whether a read has raised ChangedError
        self._path, self._journal_path, self._at, self._pages, self._content = path, journal_of(path), 0, {}, None
        self._file = self._journal = -1
        try:
            self._file = os.open(path, FLAGS)
            self._begin = self._state()
            self._end = os.fstat(self._file).st_size
            self._find_pages()
            if whole:
                self._content = self._bytes(0, self._end)
        except BaseException:
            self.close()
            raise

    def close(self):
        for descriptor in (self._file, self._journal):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._journal = -1
        super().close()

    def _open_journal(self):
        """Whether there is one."""
        try:
            self._journal = os.open(self._journal_path, FLAGS)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(os.fstat(self._journal).st_mode):
            raise OSError(f"{self._journal_path}: is no regular file")
        return True

    def _state(self):
        """Other than at the beginning as soon as pages may have been replaced by others than the journal had then."""
        header = read_all(self._journal, HEADER.itemsize, 0) if self._journal >= 0 or self._open_journal() else b""
        file, opened = os.stat(self._path), os.fstat(self._file)
        same_file = (file.st_dev, file.st_ino) == (opened.st_dev, opened.st_ino)
        if header[:8] != MAGIC.to_bytes(8, "little"):
            return same_file, header, opened.st_size, opened.st_mtime_ns
        try:
            same_journal = os.stat(self._journal_path).st_ino == os.fstat(self._journal).st_ino
        except FileNotFoundError:
            same_journal = False
        return same_file, header, same_journal

    def _find_pages(self):
        """Takes the pages of a journal that is whole and of this file; any other means nothing."""
        text = self._begin[1]
        if len(self._begin) > 3:
            return
        header = np.frombuffer(text, HEADER)[0]
        pages, end = int(header["pages"]), int(header["end"])
        if not 0 < pages <= (os.fstat(self._journal).st_size - HEADER.itemsize) // ENTRY.itemsize or end < 0:
            return
        entries = read_all(self._journal, pages * ENTRY.itemsize, HEADER.itemsize)
        rows = np.frombuffer(entries, ENTRY)
        if rows["page"].min() < 0 or rows["page"].max() > end // PAGE:
            return
        now = np.stack([np.frombuffer(read_all(self._file, PAGE, page * PAGE), "u1") for page in rows["page"].tolist()])
        if self._end >= end and np.array_equal(now, rows["after"]):
            return  # it was applied, or nothing was begun; its hash takes longer than everything else here
        if hash_of(text, entries) != int(header["hash"]) or not ((now == rows["before"]) | (now == rows["after"])).all():
            return
        self._end = end
        self._pages = {page: after.tobytes() for page, after in zip(rows["page"].tolist(), rows["after"])}

    def _bytes(self, offset, count):
        """Within the end, as they were at the beginning."""
        found = bytearray(read_all(self._file, count, offset))
        for page in range(offset // PAGE, -(-(offset + count) // PAGE)) if self._pages else ():
            if page in self._pages:
                begin, stop = max(offset, page * PAGE), min(offset + count, (page + 1) * PAGE)
                found[begin - offset : stop - offset] = self._pages[page][begin - page * PAGE : stop - page * PAGE]
        if self._state() != self._begin or not self._begin[0]:
            self.changed = True
            raise ChangedError(f"{self._path}: was written while it was read")
        return found

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        """All of the buffer; zeros after the end, as HDF5 reads files."""
        into = memoryview(buffer).cast("B")
        count = max(0, min(len(into), self._end - self._at))
        found = self._bytes(self._at, count) if self._content is None else self._content[self._at : self._at + count]
        into[:count], into[count:] = found, bytes(len(into) - count)
        self._at += len(into)
        return len(into)
