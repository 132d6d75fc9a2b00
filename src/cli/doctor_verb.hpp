// SPDX-License-Identifier: Apache-2.0
// `trireme doctor` (doctor/doctor.hpp).
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_doctor(CLI::App& command);

}  // namespace trireme::cli
