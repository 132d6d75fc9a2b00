// SPDX-License-Identifier: Apache-2.0
// What run.h5 has of a run and of each of its starts: root attributes, /deck, /sessions, /buckets.
#pragma once

#include <cstdint>

#include "h5/file.hpp"
#include "record/run/run_file.hpp"

namespace trireme::record {

/// Root attributes of a new file.
void write_facts(const h5::File& file, const RunHeader& header);

/// A row of /sessions and the rows of /buckets; /deck is replaced. `first_step` is the first that
/// this start may take.
void start_session(const h5::File& file, const RunHeader& header, std::int64_t first_step);

}  // namespace trireme::record
