// SPDX-License-Identifier: Apache-2.0
#include "comm/together.hpp"

#include <cstdint>
#include <sstream>
#include <vector>

namespace trireme::comm {
namespace {

constexpr char user = 'U', outside = 'E';
// Separators that cannot stand in a message for people: ASCII record and unit separator.
constexpr char between_findings = '\x1e', between_fields = '\x1f';

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) all.push_back(part);
  return all;
}

std::vector<Diagnostic> unpacked(const std::string& text) {
  std::vector<Diagnostic> findings;
  for (const std::string& one : parts(text, between_findings)) {
    auto fields = parts(one, between_fields);
    fields.resize(5);
    findings.push_back(
        {{fields[0], std::stoi(fields[1]), std::stoi(fields[2])}, fields[3], fields[4]});
  }
  return findings;
}

}  // namespace

namespace detail {

std::string packed(const std::exception& error) {
  const auto* mistake = dynamic_cast<const UserError*>(&error);
  if (mistake == nullptr)
    return outside + std::string(error.what());
  std::string text(1, user);
  for (const Diagnostic& finding : mistake->findings()) {
    for (const std::string& field : {finding.place.file, std::to_string(finding.place.line),
                                     std::to_string(finding.place.column), finding.subject})
      text += field + between_fields;
    text += finding.text + between_findings;
  }
  return text;
}

void settle(World& world, const std::string& mine, const std::exception_ptr& own) {
  std::int64_t failed = mine.empty() ? 0 : 1;
  world.max({&failed, 1});
  if (failed == 0)
    return;
  const auto all = world.gather_all(mine);
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& said = all[static_cast<std::size_t>(rank)];
    if (said.empty())
      continue;
    if (said[0] == user)
      throw UserError(unpacked(said.substr(1)));
    if (rank != world.rank())
      throw FailedElsewhere(rank, said.substr(1));
    try {
      std::rethrow_exception(own);
    } catch (EnvironmentError& error) {
      error.mark_known_to_all();
      throw;
    }
  }
}

}  // namespace detail

}  // namespace trireme::comm
