// SPDX-License-Identifier: Apache-2.0
#include "main_bench_matmul.hpp"

#include <cstdio>

#include <omp.h>

#include "comm/together.hpp"

#include "train/machine.hpp"
#include "train/matmul_bench.hpp"

#include "job/plan_command.hpp"

#include "main_train.hpp"

namespace trireme {

void MatmulBenchVerb::describe(CLI::App& bench) {
  verb_ = bench.add_subcommand("matmul", "The matrix products of a deck, alone and under mpirun");
  verb_->add_option("DECK", deck_, "YAML file")->capture_default_str();
  verb_->add_option("OVERRIDES", overrides_, "section.key=value, as on a run");
  verb_->add_option("--json", json_, "Write the rows into this new file as well")
      ->check(CLI::NonexistentPath);
  verb_->add_option("--repetitions", repetitions_, "A row is the median of so many")
      ->check(CLI::Range(1, 100000));
}

ExitCode MatmulBenchVerb::run(int& argc, char**& argv) const {
  return under_mpi(argc, argv, [&](comm::World& world) {
    comm::on_first_rank(world, [&] { job::expect_new_file(json_); });
    return with_deck(world, deck_, overrides_, [&](const train::Job& job, Log& /*log*/) {
      const int threads = train::choose_threads(job.run.threads, world);
      omp_set_num_threads(threads);
      const auto device = train::open_device(job.run.device, threads, world);
      const auto bench = train::bench_matmul(
          job.shape, train::choose_dtype(job.run.precision, *device), *device, world,
          {.sequences = job.batch.sequences / world.size(),
           .micro_sequences = job.batch.micro_sequences,
           .threads = threads,
           .repetitions = repetitions_});
      comm::on_first_rank(world, [&] {
        std::fputs(train::matmul_table(bench).c_str(), stdout);
        if (!json_.empty())
          job::write_new_file(json_, train::matmul_json(bench));
      });
      return ExitCode::done;
    });
  });
}

}  // namespace trireme
