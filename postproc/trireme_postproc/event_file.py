# SPDX-License-Identifier: Apache-2.0
"""TensorBoard event files without TensorBoard. Neither TensorFlow nor a library for Protocol Buffers is needed to write them.

    frame    u64 length, u32 masked CRC-32C of these 8 bytes, the data, u32 masked CRC-32C of the data; little-endian
    Event    1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary (message), 7 session_log (message: 1 status,
             START is 1)
    Summary  1 value, repeated: 1 tag (string), 2 simple_value (float)

Source: tensorflow tsl/lib/io/record_writer.h and tensorboard compat/proto/event.proto and summary.proto (the layout, not the code);
RFC 3720 appendix B.4 (CRC-32C).
"""

import math
import struct

VERSION = b"brain.Event:2"


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    """CRC-32C (Castagnoli): 0xE3069283 of b"123456789"."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest = _TABLE[(rest ^ byte) & 0xFF] ^ rest >> 8
    return rest ^ 0xFFFFFFFF


def _masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data):
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(number, data):
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def version_event(wall_time):
    """The first record of every file."""
    return framed(b"\x09" + struct.pack("<d", wall_time) + _bytes_field(3, VERSION))


def restart_event(wall_time, step):
    """Makes a reader forget the values of this step and later ones that come before it, in this file or an earlier one."""
    return framed(b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _bytes_field(7, b"\x08\x01"))


def _float32(value):
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def scalars_event(wall_time, step, scalars):
    """`scalars`: pairs of tag and value, which is kept as a 32-bit float."""
    values = b"".join(_bytes_field(1, _bytes_field(1, tag.encode()) + b"\x15" + _float32(value)) for tag, value in scalars)
    return framed(b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _bytes_field(5, values))
