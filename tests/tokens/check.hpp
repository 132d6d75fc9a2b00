// SPDX-License-Identifier: Apache-2.0
// check_token_files() on one rank.
#pragma once

#include <string>
#include <vector>

#include "comm/control/world.hpp"

#include "tokens/token_files.hpp"

namespace trireme::tokens {

inline TokenFiles check(const std::vector<std::string>& paths,
                        const TokenRequirements& requirements) {
  const auto world = comm::make_self_world();
  return check_token_files(paths, "data.train.tokens", requirements, *world);
}

}  // namespace trireme::tokens
