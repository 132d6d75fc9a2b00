// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/input_file.hpp"

#include "text/pieces.hpp"

namespace trireme::tokens {
namespace {

/// Pieces of plain text are about so long.
constexpr std::size_t piece_bytes = std::size_t{4} << 20U;
constexpr std::size_t read_bytes = std::size_t{1} << 20U;
/// What next_cut() must see before the place from which it looks.
constexpr std::int64_t cut_context = 3;

/// Lines that end before byte `end` of the file.
std::int64_t lines_before(const std::string& path, std::int64_t end) {
  if (end == 0)
    return 0;
  TextInput input(path, 0, end);
  std::string block(read_bytes, '\0');
  std::int64_t lines = 0;
  while (const auto count = input.read_some(std::as_writable_bytes(std::span(block))))
    lines += std::count(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count), '\n');
  return lines;
}

}  // namespace

std::int64_t boundary(const std::string& path, const std::string& field, std::int64_t at) {
  const files::InputFile file(path);
  if (at <= 0)
    return 0;
  const bool lines = !field.empty();
  const std::int64_t front = std::max<std::int64_t>(at - (lines ? 1 : cut_context), 0);
  std::string window;
  for (std::size_t wanted = document_front;; wanted *= 2) {
    if (at >= file.size())
      return file.size();
    window.resize(wanted);
    window.resize(file.read_some(front, std::as_writable_bytes(std::span(window))));
    const bool whole = front + std::ssize(window) >= file.size();
    // A line begins after the line break at or before `at` - 1.
    const std::size_t cut =
        lines ? window.find('\n')
              : text::next_cut(window, static_cast<std::size_t>(at - front), whole);
    if (cut < window.size())
      return front + static_cast<std::int64_t>(cut) + (lines ? 1 : 0);
    if (whole)
      return file.size();
  }
}

std::string front_of(const std::string& path) {
  TextInput input(path);
  std::string front(document_front, '\0');
  std::size_t size = 0;
  while (size < front.size())
    if (const auto count = input.read_some(std::as_writable_bytes(std::span(front)).subspan(size)))
      size += count;
    else
      break;
  front.resize(size);
  return front;
}

Documents::Documents(std::string path, std::string field, std::int64_t begin, std::int64_t end)
    : path_(std::move(path)), field_(std::move(field)), begin_(begin), input_(path_, begin, end) {}

bool Documents::fill(std::size_t bytes) {
  if (used_ > 0) {
    buffer_.erase(0, used_);
    used_ = 0;
  }
  while (!ended_ && buffer_.size() < bytes) {
    const std::size_t size = buffer_.size();
    buffer_.resize(size + read_bytes);
    const auto count = input_.read_some(std::as_writable_bytes(std::span(buffer_)).subspan(size));
    buffer_.resize(size + count);
    ended_ = count == 0;
  }
  return !ended_;
}

bool Documents::next(TextPiece& piece) {
  return field_.empty() ? next_text(piece) : next_line(piece);
}

bool Documents::next_text(TextPiece& piece) {
  for (std::size_t wanted = 2 * piece_bytes;; wanted *= 2) {
    const bool more = fill(wanted);
    if (buffer_.empty())
      return false;
    std::size_t cut = buffer_.size();
    if (more) {
      cut = text::next_cut(buffer_, wanted / 2, false);
      if (cut >= buffer_.size())
        continue;
    }
    piece = {std::string_view(buffer_).substr(0, cut), begin_ == 0 && std::exchange(first_, false)};
    used_ = cut;
    return true;
  }
}

bool Documents::next_line(TextPiece& piece) {
  for (;;) {
    std::size_t end = buffer_.find('\n', used_);
    while (end == std::string::npos && !ended_) {
      const std::size_t searched = buffer_.size() - used_;
      fill(searched + 1);
      end = buffer_.find('\n', searched);
    }
    if (end == std::string::npos && used_ == buffer_.size())
      return false;
    const std::size_t stop = std::min(end, buffer_.size());
    const auto line = std::string_view(buffer_).substr(used_, stop - used_);
    used_ = std::min(stop + 1, buffer_.size());
    ++lines_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object())
      fail("is not a JSON object; without --field or data's `field` the file is plain text");
    const auto found = object.find(field_);
    if (found == object.end())
      fail(fmt::format("has no key '{}'", field_));
    if (!found->is_string())
      fail(fmt::format("'{}' is not text but {}", field_, found->type_name()));
    text_ = found->get<std::string>();
    piece = {text_, true};
    return true;
  }
}

void Documents::fail(const std::string& what) const {
  const auto line = lines_before(path_, begin_) + lines_;
  throw UserError(Place{path_, static_cast<int>(std::min<std::int64_t>(line, 2'000'000'000)), 1},
                  "the line " + what);
}

}  // namespace trireme::tokens
