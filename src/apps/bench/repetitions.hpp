// SPDX-License-Identifier: Apache-2.0
// How often a bench repeats its rows unless it is asked otherwise. Benches that race single
// operations (bench/race.hpp) take the default of a race, which is less: their rows are many.
#pragma once

namespace trireme::bench {

inline constexpr int usual_repetitions = 21;

}  // namespace trireme::bench
