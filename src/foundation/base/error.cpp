// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include <sys/resource.h>

#include "base/kernel_text.hpp"

namespace trireme {
namespace {

/// The path below src/, so that messages do not contain paths of the build machine.
const char* below_source(const char* file) {
  const char* found = file;
  for (const char* at = std::strstr(file, "src/"); at != nullptr; at = std::strstr(at + 1, "src/"))
    found = at + 4;
  return found;
}

/// Shortens long values of a deck in messages to their beginning and end.
std::string shortened(const std::string& text) {
  constexpr std::size_t most = 1500, end = 300;
  if (text.size() <= most)
    return text;
  return fmt::format("{} ... ({} bytes) ... {}", text.substr(0, most - end), text.size() - most,
                     text.substr(text.size() - end));
}

/// How much memory the process uses, and its `ulimit -v` if that is set.
std::string about_memory() {
  std::string text;
  if (const auto size = bytes_of(text_of("/proc/self/status"), "VmSize"); size > 0)
    text = fmt::format("; the process has {} MiB of address space", size >> 20);
  if (const auto limit = ulimit_of(RLIMIT_AS))
    text += fmt::format(", and its limit is {} MiB (ulimit -v)", *limit >> 20);
  return text;
}

}  // namespace

std::string to_string(const Diagnostic& diagnostic) {
  std::string line;
  const Place& place = diagnostic.place;
  if (!place.file.empty()) {
    line += place.file;
    if (place.line > 0)
      line += fmt::format(":{}:{}", place.line, place.column);
    line += ": ";
  }
  line += "error: ";
  if (!diagnostic.subject.empty())
    line += diagnostic.subject + ": ";
  line += shortened(diagnostic.text);
  // The text may contain bytes of the deck, and a terminal must not interpret them.
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

UserError::UserError(std::vector<Diagnostic> findings) : findings_(std::move(findings)) {
  for (const Diagnostic& finding : findings_)
    text_ += (text_.empty() ? "" : "\n") + to_string(finding);
}
UserError::UserError(std::string text) : UserError(Place{}, std::move(text)) {}
UserError::UserError(Place place, std::string text)
    : UserError(std::vector<Diagnostic>{{std::move(place), "", std::move(text)}}) {}

void Findings::add(Diagnostic finding) {
  constexpr std::size_t most = 20;
  if (first_.size() < most)
    first_.push_back(std::move(finding));
  else
    ++more_;
}

void Findings::settle() {
  if (more_ > 0)
    first_.push_back({first_.back().place, "", fmt::format("and {} more", more_)});
  if (!first_.empty())
    throw UserError(std::move(first_));
}

EnvironmentError::EnvironmentError(std::string_view which,
                                   std::string_view statement,
                                   std::string_view reason,
                                   const char* file,
                                   int line)
    : std::runtime_error(fmt::format(
          "{}: {} failed: {} ({}:{})", which, statement, reason, below_source(file), line)),
      reason_(reason) {}

ContractError::ContractError(std::string_view kind,
                             std::string_view condition,
                             std::string_view text,
                             const char* file,
                             int line)
    : std::logic_error(
          fmt::format("{} {}: {} ({}:{})", kind, condition, text, below_source(file), line)) {}

Verdict verdict_of(const std::exception& error) {
  if (const auto* user = dynamic_cast<const UserError*>(&error)) {
    Verdict verdict{ExitCode::user_error, {}};
    for (const Diagnostic& finding : user->findings()) verdict.lines.push_back(to_string(finding));
    return verdict;
  }
  if (dynamic_cast<const EnvironmentError*>(&error) != nullptr ||
      dynamic_cast<const std::system_error*>(&error) != nullptr)
    return {ExitCode::environment, {fmt::format("error: {}", error.what())}};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {ExitCode::environment, {"error: out of memory" + about_memory()}};
  if (dynamic_cast<const ContractError*>(&error) != nullptr)
    return {ExitCode::contract, {fmt::format("error: a bug in trireme: {}", error.what())}};
  return {ExitCode::contract, {fmt::format("error: a bug in trireme: uncaught: {}", error.what())}};
}

namespace detail {
void fail_contract(
    const char* kind, const char* condition, const std::string& text, const char* file, int line) {
  throw ContractError(kind, condition, text, file, line);
}
}  // namespace detail

}  // namespace trireme
