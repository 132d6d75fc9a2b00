# SPDX-License-Identifier: Apache-2.0
"""TensorBoard event files without TensorBoard. Neither TensorFlow nor a library for Protocol Buffers is needed to write them.

    frame    u64 length, u32 masked CRC-32C of these 8 bytes, the data, u32 masked CRC-32C of the data; little-endian
    Event    1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary (message), 7 session_log (message: 1 status,
             START is 1)
    Summary  1 value, repeated: 1 tag (string), 2 simple_value (float), 9 metadata (message: 1 plugin_data: 1 plugin_name, 2 content)

The table of hyperparameters is a value without a number, whose metadata for the plugin "hparams" holds HParamsPluginData: 1 version,
3 session_start_info: 1 hparams, a map (entries: 1 key, 2 google.protobuf.Value: 2 number, 3 string), 4 group_name, 5 start_time_secs.

Source: tensorflow tsl/lib/io/record_writer.h, tensorboard compat/proto/event.proto and summary.proto, and plugins/hparams/plugin_data.proto
(the layout, not the code); RFC 3720 appendix B.4 (CRC-32C).
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
    """Returns the CRC-32C (Castagnoli) of `data`. Check value: 0xE3069283 for b"123456789"."""
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
    """Returns the first record of every file."""
    return framed(b"\x09" + struct.pack("<d", wall_time) + _bytes_field(3, VERSION))


def restart_event(wall_time, step):
    """Returns a record that makes readers discard all earlier values of this step and later steps, in this file and older ones."""
    return framed(b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _bytes_field(7, b"\x08\x01"))


def _float32(value):
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _number_field(number, value):
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


def hyperparameters_event(wall_time, name, values):
    """Returns the record of a row in TensorBoard's table of hyperparameters. `values`: numbers and texts by name."""
    start = b""
    for key, value in sorted(values.items()):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        item = _number_field(2, float(value)) if is_number else _bytes_field(3, str(value).encode("utf-8", "replace"))
        start += _bytes_field(1, _bytes_field(1, key.encode("utf-8", "replace")) + _bytes_field(2, item))
    start += _bytes_field(4, name.encode("utf-8", "replace")) + _number_field(5, wall_time)
    plugin = _bytes_field(1, b"hparams") + _bytes_field(2, b"\x08\x00" + _bytes_field(3, start))
    summary = _bytes_field(1, _bytes_field(1, b"_hparams_/session_start_info") + _bytes_field(9, _bytes_field(1, plugin)))
    return framed(b"\x09" + struct.pack("<d", wall_time) + _bytes_field(5, summary))


def scalars_event(wall_time, step, scalars):
    """Returns the record of the values of a step. `scalars`: pairs of tag and value. Values are stored as 32-bit floats."""
    values = b"".join(_bytes_field(1, _bytes_field(1, tag.encode()) + b"\x15" + _float32(value)) for tag, value in scalars)
    return framed(b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _bytes_field(5, values))
