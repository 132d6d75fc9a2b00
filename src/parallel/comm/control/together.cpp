// SPDX-License-Identifier: Apache-2.0
#include "comm/control/together.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/packing.hpp"

namespace trireme::comm {
namespace {

constexpr char user = 'U', outside = 'E';

std::vector<Diagnostic> unpacked(std::string_view bytes) {
  Unpacker in(bytes);
  std::vector<Diagnostic> findings(in.number<std::size_t>());
  for (Diagnostic& finding : findings) {
    finding.place.file = in.text();
    finding.place.line = in.number<int>();
    finding.place.column = in.number<int>();
    finding.subject = in.text();
    finding.text = in.text();
  }
  return findings;
}

}  // namespace

namespace detail {

std::string packed(const std::exception& error) {
  const auto* mistake = dynamic_cast<const UserError*>(&error);
  if (mistake == nullptr)
    return outside + std::string(error.what());
  Packer out;
  out.number(mistake->findings().size());
  for (const Diagnostic& finding : mistake->findings()) {
    out.text(finding.place.file);
    out.number(finding.place.line);
    out.number(finding.place.column);
    out.text(finding.subject);
    out.text(finding.text);
  }
  return user + out.take();
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
      throw UserError(unpacked(std::string_view(said).substr(1)));
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
