// SPDX-License-Identifier: Apache-2.0
// The header of a NumPy array (.npy), whose elements are token ids:
//
//     "\x93NUMPY", u8 major, u8 minor, u16 (from version 2 on u32) length of the header, then the
//     header: a Python dictionary such as
//     {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }
//
// Source: numpy/lib/format.py (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <cstdint>
#include <string>

#include "files/input_file.hpp"

namespace trireme::tokens {

struct NumpyArray {
  int width = 0;  ///< bytes per element
  bool is_signed = false;
  std::int64_t offset = 0, tokens = 0;
};

/// "" when the file is an array of little-endian integers of 1, 2, 4 or 8 bytes, one row after the
/// other, else what is wrong with it.
std::string read_numpy(const files::InputFile& file, NumpyArray& array);

}  // namespace trireme::tokens
