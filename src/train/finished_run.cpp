// SPDX-License-Identifier: Apache-2.0
#include "train/finished_run.hpp"

#include <utility>

#include <fmt/format.h>

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/run_trial.hpp"

namespace trireme::train {

bool is_finished(const session::Job& job, const std::string& path) {
  if (const auto newest = record::newest_checkpoint(path); newest && newest->step >= job.run.steps)
    return true;
  return !job.checkpoint.regular() &&
         record::look_at_run_file(path + "/run.h5").last_step.value_or(0) >= job.run.steps;
}

std::string choose_directory(const session::Job& job, comm::World& world) {
  std::string path = job.run.directory;
  comm::on_first_rank(world, [&] {
    if (job.run.when_finished == session::WhenFinished::renew)
      for (int number = 2; is_finished(job, path); ++number)
        path = fmt::format("{}-{}", job.run.directory, number);
  });
  return world.broadcast(std::move(path), 0);
}

}  // namespace trireme::train
