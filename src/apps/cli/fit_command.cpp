// SPDX-License-Identifier: Apache-2.0
#include "cli/fit_command.hpp"

#include <filesystem>

#include "files/output_file.hpp"

#include "comm/control/together.hpp"

#include "session/rank_memory.hpp"
#include "session/saver.hpp"

#include "bench/checkpoints.hpp"
#include "cli/under_mpi.hpp"
#include "plan/machine_file.hpp"

namespace trireme::cli {

ExitCode fit_command(Arguments arguments,
                     const DeckArguments& deck,
                     const std::string& path,
                     const bench::FitRequest& request) {
  return under_mpi(arguments, [&](comm::World& world) {
    plan::Machine older;
    comm::on_first_rank(world, [&] {
      if (std::filesystem::exists(path))
        older = plan::read_machine(path);
    });
    return with_deck(world, deck, [&](const session::Job& job, Log& log) {
      plan::Machine fresh = bench::measure_machine(job, world, log, request);
      const std::filesystem::path file(path);
      const bench::CheckpointCost checkpoint = bench::measure_checkpoints(
          world, file.has_parent_path() ? file.parent_path().string() : ".",
          {.facts = session::facts_of(job),
           .step_s =
               fresh.compute.front().seconds(session::most_micro_steps(job.batch, world.size()))});
      fresh.storage_bytes_per_s = checkpoint.bytes_per_s;
      fresh.storage_latency_s = checkpoint.latency_s;
      fresh.storage_tensor_s = checkpoint.tensor_s;
      comm::on_first_rank(world, [&] {
        print(plan::machine_table(fresh));
        files::write_staged(path, plan::machine_text(plan::merged(older, fresh)));
      });
      return ExitCode::done;
    });
  });
}

}  // namespace trireme::cli
