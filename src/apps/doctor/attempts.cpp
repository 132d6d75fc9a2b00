// SPDX-License-Identifier: Apache-2.0
#include "doctor/attempts.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/packing.hpp"

#include "comm/control/together.hpp"

namespace trireme::doctor {
namespace {

std::string without_prefix(std::string_view line) {
  constexpr std::string_view prefix = "error: ";
  return std::string(line.starts_with(prefix) ? line.substr(prefix.size()) : line);
}

using Said = std::pair<ExitCode, std::string>;  ///< code and reason

std::string packed(const std::exception& error) {
  const Verdict verdict = verdict_of(error);
  std::string reason;
  for (const std::string& line : verdict.lines)
    reason += (reason.empty() ? "" : "; ") + without_prefix(line);
  return pack(Said(verdict.code, reason));
}

/// The problems of `part` on all ranks, each reason once.
std::vector<Problem> problems_of(const std::string& part, const std::vector<std::string>& said) {
  std::vector<Problem> all;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank].empty())
      continue;
    auto [code, reason] = unpack<Said>(said[rank]);
    Problem problem{
        .part = part, .rank = static_cast<int>(rank), .reason = std::move(reason), .code = code};
    if (std::ranges::find(all, problem.reason, &Problem::reason) == all.end())
      all.push_back(std::move(problem));
  }
  return all;
}

}  // namespace

ExitCode exit_code_of(const std::vector<Problem>& problems) {
  ExitCode code = ExitCode::done;
  for (const Problem& problem : problems) code = std::max(code, problem.code);
  return code;
}

comm::World& Attempts::world_of_a_part() {
  if (world_.size() == 1)
    return world_;
  if (part_worlds_.empty() || failed_) {
    world_.barrier();  // MPI's own waiting has no deadline
    part_worlds_.push_back(comm::make_mpi_world());
    part_worlds_.back()->set_deadline(deadline_s_);
    failed_ = false;
  }
  return *part_worlds_.back();
}

void Attempts::measure(const std::string& part, const std::function<void(comm::World&)>& action) {
  comm::World& apart = world_of_a_part();
  std::int64_t failed = 0;
  std::string mine;
  try {
    action(apart);
  } catch (const comm::FailedElsewhere&) {  // that rank gives the reason
    failed = 1;
  } catch (const std::exception& error) {
    failed = 1;
    mine = packed(error);
  }
  world_.max({&failed, 1});
  failed_ = failed != 0;
  if (!failed_)
    return;
  const std::vector<Problem> all = problems_of(part, world_.gather_all(mine));
  problems_.insert(problems_.end(), all.begin(), all.end());
}

}  // namespace trireme::doctor
