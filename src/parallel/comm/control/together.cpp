// SPDX-License-Identifier: Apache-2.0
#include "comm/control/together.hpp"

#include <cstdint>
#include <string_view>
#include <tuple>

namespace trireme {

static auto fields(Diagnostic& one) {
  return std::tie(one.place.file, one.place.line, one.place.column, one.subject, one.text);
}

}  // namespace trireme

namespace trireme::comm {
namespace {

constexpr char user = 'U', outside = 'E';

}  // namespace

namespace detail {

std::string packed_error() {
  try {
    throw;
  } catch (const UserError& mistake) {
    return user + pack(mistake.findings());
  } catch (const EnvironmentError& error) {
    return outside + std::string(error.what());
  } catch (const std::bad_alloc& error) {
    return outside + std::string(error.what());
  }
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
      throw UserError(unpack<std::vector<Diagnostic>>(std::string_view(said).substr(1)));
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
