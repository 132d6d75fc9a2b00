// SPDX-License-Identifier: Apache-2.0
// The header of a NumPy array (.npy), whose elements are token ids:
//
//     "\x93NUMPY", u8 major, u8 minor, u16 (from version 2 on u32) length of the header, then the
//     header: a Python dictionary such as
//     {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }
//
// Source: numpy/lib/format.py (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "tokens/token_files.hpp"

namespace trireme::tokens {
namespace {

constexpr std::size_t fixed_bytes = 8, most_header = 64 << 10;

/// What follows 'key': in the dictionary; empty when there is none.
std::string_view value_of(std::string_view header, std::string_view key) {
  const auto quoted = fmt::format("'{}':", key);
  const std::size_t at = header.find(quoted);
  if (at == std::string_view::npos)
    return {};
  header.remove_prefix(at + quoted.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

/// The product of the numbers in "(2, 3)"; -1: not a shape, or too large.
std::int64_t elements_of(std::string_view shape) {
  if (!shape.starts_with('('))
    return -1;
  std::int64_t product = 1;
  shape = shape.substr(1, shape.find(')') - 1);
  while (!shape.empty()) {
    const std::string_view one = shape.substr(0, shape.find(','));
    shape.remove_prefix(std::min(one.size() + 1, shape.size()));
    shape.remove_prefix(std::min(shape.find_first_not_of(' '), shape.size()));
    std::int64_t number = -1;
    const auto [end, problem] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (problem != std::errc() || end != one.data() + one.size() || number < 0 ||
        __builtin_mul_overflow(product, number, &product))
      return -1;
  }
  return product;
}

/// "'<u2'" and the like.
bool read_type(std::string_view type, ExaminedFile& made) {
  constexpr std::string_view widths = "1248";
  if (type.size() < 5 || type[0] != '\'' || type[4] != '\'' || (type[2] != 'u' && type[2] != 'i') ||
      widths.find(type[3]) == std::string_view::npos)
    return false;
  made.file.width = type[3] - '0';
  made.is_signed = type[2] == 'i';
  return type[1] == '<' || (type[1] == '|' && made.file.width == 1);
}

}  // namespace

std::string examine_numpy(const files::InputFile& file, ExaminedFile& made) {
  std::array<unsigned char, fixed_bytes + 4> front{};
  if (file.read_some(0, std::as_writable_bytes(std::span(front))) < front.size())
    return "is a NumPy array that ends within its header";
  const int major = front[6];
  const std::size_t count_bytes = major == 1 ? 2 : 4;
  std::size_t length = 0;
  std::memcpy(&length, front.data() + fixed_bytes, count_bytes);  // little-endian
  if (major < 1 || major > 3 || length > most_header)
    return fmt::format(
        "is a NumPy array of version {} with a header of {} bytes: versions 1 to 3 "
        "and headers of at most {} bytes are read",
        major, length, most_header);
  std::string header(length, '\0');
  made.file.offset = static_cast<std::int64_t>(fixed_bytes + count_bytes + length);
  if (file.read_some(static_cast<std::int64_t>(fixed_bytes + count_bytes),
                     std::as_writable_bytes(std::span(header))) < length)
    return "is a NumPy array that ends within its header";
  if (const auto type = value_of(header, "descr"); !read_type(type, made))
    return fmt::format(
        "is a NumPy array of type {}. Arrays of little-endian integers of 1, 2, 4 or "
        "8 bytes are read: convert it with numpy.save(FILE, array.astype('<u4'))",
        type.substr(0, type.find(',')));
  const auto shape = value_of(header, "shape");
  made.file.tokens = elements_of(shape);
  if (made.file.tokens < 0)
    return "is a NumPy array without a valid shape in its header";
  if (value_of(header, "fortran_order").starts_with("True") &&
      shape.find(',') + 1 < shape.find(')'))
    return "is a NumPy array in Fortran order, whose rows are not stored one after the other. "
           "Convert it with numpy.save(FILE, numpy.ascontiguousarray(array))";
  const std::int64_t stored = (file.size() - made.file.offset) / made.file.width;
  if (made.file.tokens != stored || (file.size() - made.file.offset) % made.file.width != 0)
    return fmt::format(
        "is a NumPy array of {} elements of {} bytes, but {} bytes follow its header",
        made.file.tokens, made.file.width, file.size() - made.file.offset);
  return made.file.tokens == 0 ? "is a NumPy array without elements" : "";
}

}  // namespace trireme::tokens
