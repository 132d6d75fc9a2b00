// SPDX-License-Identifier: Apache-2.0
// Default number of repetitions of a bench. Benches of single operations have their own, smaller
// default (bench/race.hpp), because they have many rows.
#pragma once

namespace trireme::bench {

inline constexpr int usual_repetitions = 21;

}  // namespace trireme::bench
