// SPDX-License-Identifier: Apache-2.0
// Measures a step with and without the gradient engine, and the generation of a token with and
// without a cache. Alone or under mpirun:
//
//     bench_steps engine DECK [section.key=value …]
//     bench_steps generate DECK [section.key=value …]
#include <string>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"

#include "bench_engine.hpp"
#include "bench_generate.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"

namespace trireme {
namespace {

std::string engine(const session::Job& job, comm::World& world, Log& log) {
  constexpr int steps = 20;
  return bench::engine_table(bench::bench_engine(job, world, log, steps));
}

std::string generate(const session::Job& the_job, comm::World& world) {
  constexpr std::int64_t texts = 8;
  constexpr int repetitions = 3;
  const int threads = session::choose_threads(the_job.run.threads, world);
  omp_set_num_threads(threads);
  const auto device = session::open_device(the_job.run.device, threads, world);
  const DType dtype = session::choose_dtype(the_job.run.precision, *device, world);
  const session::Job job = session::decided(the_job, world, *device, dtype);
  return bench::generate_table(bench::bench_generate(job.shape, dtype, *device, world, texts,
                                                     repetitions,
                                                     session::operation_options(job, *device)));
}

}  // namespace
}  // namespace trireme

int main(int count, char** words) {
  using namespace trireme;
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() < 2 || (arguments[0] != "engine" && arguments[0] != "generate")) {
    fmt::print(stderr, "usage: bench_steps engine | generate DECK [section.key=value …]\n");
    return 2;
  }
  const cli::DeckArguments deck{arguments[1], {arguments.begin() + 2, arguments.end()}};
  const auto code = cli::under_mpi(
      {.argc = count, .argv = words, .verb = "bench_steps"}, [&](comm::World& world) {
        return cli::with_deck(world, deck, [&](const cli::SharedDeck& shared, Log& log) {
          const session::Job& job = shared.job;
          const std::string table =
              arguments[0] == "engine" ? engine(job, world, log) : generate(job, world);
          if (world.rank() == 0)
            fmt::print("{}", table);
          return ExitCode::done;
        });
      });
  return static_cast<int>(code);
}
