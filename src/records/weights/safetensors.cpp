// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "text/json_file.hpp"

namespace trireme::weights {
namespace {

using text::Json;

constexpr std::int64_t length_bytes = 8;

/// Bits of every dtype of the format. Source: safetensors/src/tensor.rs, Dtype.
constexpr std::pair<std::string_view, int> dtype_bits[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64}};

/// The value if it is an integer from 0 to 2^63 - 1, else nothing.
std::optional<std::int64_t> natural(const Json& value) {
  if (!value.is_number_unsigned())
    return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  return number > INT64_MAX ? std::nullopt : std::optional(static_cast<std::int64_t>(number));
}

class Parser {
 public:
  Parser(const std::string& path, std::int64_t data_begin, std::int64_t file_bytes)
      : path_(path), data_begin_(data_begin), data_bytes_(file_bytes - data_begin) {}

  SafetensorsHeader parse(const Json& root) {
    if (!root.is_object())
      throw UserError({path_}, "the header is not a JSON object {...}");
    for (const auto& [name, value] : root.items()) {
      if (name == "__metadata__")
        metadata(value);
      else
        tensor(name, value);
    }
    if (findings_.size() == 0)  // offsets of invalid entries are not meaningful
      tile();
    findings_.settle();
    return std::move(header_);
  }

 private:
  void say(std::string_view subject, std::string text) {
    findings_.add({path_}, text::shortened(subject), std::move(text));
  }

  void metadata(const Json& value) {
    if (!value.is_object())
      return say("__metadata__", "expected an object {...}");
    for (const auto& [name, word] : value.items()) {
      if (!word.is_string())
        say(fmt::format("__metadata__.{}", text::shortened(name)), "expected a string");
      else
        header_.metadata.emplace_back(name, word.get<std::string>());
    }
  }

  void tensor(const std::string& name, const Json& value) {
    if (!value.is_object())
      return say(name, "expected an object {dtype, shape, data_offsets}");
    const std::size_t before = findings_.size();
    for (const auto& [key, ignored] : value.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        say(name, fmt::format("unknown key '{}' of a tensor", text::shortened(key)));
    SafetensorsEntry entry{.name = name};
    const std::int64_t bits = dtype(text::member(value, "dtype"), entry);
    const std::int64_t elements = shape(text::member(value, "shape"), entry);
    offsets(text::member(value, "data_offsets"), entry);
    if (findings_.size() > before)
      return;
    std::int64_t size = 0;
    if (__builtin_mul_overflow(elements, bits, &size))
      return say(name, fmt::format("the size in bytes of {} elements of {} overflows", elements,
                                   entry.dtype));
    if (size % 8 != 0 || size / 8 != entry.end - entry.begin)
      return say(
          name, fmt::format("{} {} needs {} bytes, but its offsets are {} bytes apart", entry.dtype,
                            shape_text(entry.shape), size / 8, entry.end - entry.begin));
    header_.tensors.push_back(std::move(entry));
  }
  /// Each function reads one part of the entry, or reports what is wrong with it.
  std::int64_t dtype(const Json& value, SafetensorsEntry& entry) {
    if (value.is_string())
      entry.dtype = value.get<std::string>();
    for (const auto& [name, bits] : dtype_bits)
      if (entry.dtype == name)
        return bits;
    say(entry.name, value.is_string()
                        ? fmt::format("unknown dtype '{}'", text::shortened(entry.dtype))
                        : "its dtype is not a string");
    return 0;
  }
  std::int64_t shape(const Json& value, SafetensorsEntry& entry) {
    if (!value.is_array())
      say(entry.name, "its shape is not a list [...]");
    std::int64_t elements = 1;
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
      const auto size = natural(value[i]);
      if (!size || __builtin_mul_overflow(elements, *size, &elements)) {
        say(entry.name, size ? "the number of elements of its shape overflows"
                             : "an extent of its shape is not an integer from 0 to 2^63 - 1");
        break;
      }
      entry.shape.push_back(*size);
    }
    return elements;
  }
  void offsets(const Json& value, SafetensorsEntry& entry) {
    const auto begin = value.is_array() && value.size() == 2 ? natural(value[0]) : std::nullopt;
    const auto end = begin ? natural(value[1]) : std::nullopt;
    if (!end || *begin > *end)
      return say(entry.name,
                 "its data_offsets are not two integers [begin, end] with begin <= end");
    if (*end > data_bytes_)
      return say(entry.name, fmt::format("it ends at byte {} of the data, but the file has {}",
                                         *end, data_bytes_));
    entry.begin = data_begin_ + *begin;
    entry.end = data_begin_ + *end;
  }
  void tile() {
    std::ranges::sort(header_.tensors, {}, [](const SafetensorsEntry& entry) {
      return std::tuple(entry.begin, entry.end, std::string_view(entry.name));
    });
    std::int64_t next = data_begin_;
    std::string_view before = "the header";
    for (const SafetensorsEntry& entry : header_.tensors) {
      if (entry.begin != next)
        say(entry.name,
            fmt::format("it begins at byte {} of the data, and {} ends at byte {}: {}",
                        entry.begin - data_begin_, text::shortened(before), next - data_begin_,
                        entry.begin < next ? "they overlap" : "there is a gap between them"));
      next = std::max(next, entry.end);
      before = entry.name;
    }
    if (next != data_begin_ + data_bytes_)
      say("", fmt::format("its tensors end at byte {} of the data, and {} bytes follow",
                          next - data_begin_, data_begin_ + data_bytes_ - next));
  }

  const std::string& path_;
  const std::int64_t data_begin_, data_bytes_;
  SafetensorsHeader header_;
  Findings findings_;
};

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsHeader read_safetensors(const files::InputFile& file) {
  const auto refuse = [&](std::string text) { throw UserError({file.path()}, std::move(text)); };
  if (file.size() < length_bytes)
    refuse(
        fmt::format("the file has {} bytes, but a safetensors file begins with 8 bytes of length",
                    file.size()));
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(most_header_bytes))
    refuse(fmt::format("the header's length is {} bytes; a safetensors file has at most {}", length,
                       most_header_bytes));
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file.size() - length_bytes)
    refuse(
        fmt::format("a header of {} bytes in a file of {}: the file was truncated, or is not a "
                    "safetensors file",
                    header_bytes, file.size()));
  text::FileText header{file.path(), std::string(static_cast<std::size_t>(length), '\0')};
  file.read(length_bytes, std::as_writable_bytes(std::span(header.bytes)));
  return Parser(header.path, length_bytes + header_bytes, file.size())
      .parse(text::parse_json(header));
}

}  // namespace trireme::weights
