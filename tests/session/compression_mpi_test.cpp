// SPDX-License-Identifier: Apache-2.0
// The state that gradient compression carries between steps, in checkpoints.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/control/mpi_world.hpp"

#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::session {
namespace {

/// The state under a name, by element of the model; 0 where this rank stores nothing.
std::vector<double> carried(const Session& session, const std::string& name) {
  std::vector<double> all;
  std::vector<std::size_t> begins;
  for (const layout::Parameter& parameter : session.plan.parameters()) {
    begins.push_back(all.size());
    all.resize(all.size() + static_cast<std::size_t>(parameter.elements()));
  }
  for (const reduce::Carried& one : session.engine.carried())
    if (one.name == name)
      for (const layout::Piece& piece :
           session.plan.find_pieces(one.bucket, one.begin, one.values.elements))
        std::copy_n(one.values.slice(piece.shard_begin, piece.elements).as<float>(), piece.elements,
                    all.begin() + static_cast<std::ptrdiff_t>(begins[at(piece.parameter)]) +
                        piece.parameter_begin);
  return all;
}

/// The sum over ranks first, first + stride, …; in fp32, as the ranks add it.
std::vector<double> sum(const std::vector<double>& of_ranks,
                        std::size_t elements,
                        int first,
                        int stride) {
  std::vector<double> all(elements);
  for (auto rank = static_cast<std::size_t>(first); rank * elements < of_ranks.size();
       rank += static_cast<std::size_t>(stride))
    for (std::size_t i = 0; i < elements; ++i)
      all[i] = static_cast<double>(static_cast<float>(all[i]) +
                                   static_cast<float>(of_ranks[rank * elements + i]));
  return all;
}

/// Rank 0 has the errors of all ranks and of sums, other ranks zeros.
void expect_gradients(const Session& session,
                      const std::vector<double>& errors,
                      const std::vector<double>& sum_errors) {
  std::size_t i = 0;
  for (std::size_t p = 0; p < session.plan.parameters().size(); ++p) {
    const View gradient = session.engine.gradient(static_cast<ParameterIndex>(p));
    for (std::int64_t k = 0; k < gradient.elements; ++k, ++i)
      ASSERT_NEAR(static_cast<double>(gradient.as<float>()[k]),
                  session.world.rank() == 0 ? errors[i] + sum_errors[i] : 0, 1e-7)
          << "element " << i;
  }
}

void save_and_load(const Job& job, comm::MpiWorld& world) {
  Log log(false, "test");
  const auto data = open_data(job, "unused", world, log);
  std::optional<test::ScratchDirectory> scratch;
  if (world.rank() == 0)
    scratch.emplace();
  const std::string path = world.broadcast(scratch ? scratch->path() : "", 0);
  MemoryCopies copies;
  copies.choose_partners(world);
  std::vector<double> errors, sum_errors, factors, all_errors, all_sum_errors;
  {
    Session session(job, data, world);
    Saver saver(session, world);
    saver.initialize();
    for (const std::int64_t step : {1, 2}) session.step(step, [] { return Requests{}; });
    saver.prepare(path, {});
    saver.begin(2);
    saver.finish();
    saver.copy_to(copies, 2, {});
    errors = carried(session, "error");
    sum_errors = carried(session, "sum_error");
    factors = carried(session, "factor_of_rank_2");
    all_errors = world.gather_all(errors);
    all_sum_errors = world.gather_all(sum_errors);
    EXPECT_GT(std::ranges::count_if(errors, [](double error) { return error != 0; }),
              std::ssize(errors) / 4);
  }
  {
    Session session(job, data, world);
    Saver(session, world).load_newest(path, log);
    EXPECT_EQ(carried(session, "error"), errors);
    EXPECT_EQ(carried(session, "sum_error"), sum_errors);
    EXPECT_EQ(carried(session, "factor_of_rank_2"), factors);
  }
  const bool left = world.rank() + 1 == world.size();
  comm::MpiWorld fewer(world, left ? 1 : 0);
  for (const bool from_memory : {false, true}) {
    if (left)
      break;
    SCOPED_TRACE(from_memory);
    Session session(job, data, fewer);
    const std::string place = from_memory ? path + "/memory" : path;
    if (from_memory) {
      EXPECT_TRUE(Saver(session, fewer).write_from(copies, place, log));
    }
    Saver(session, fewer).load_newest(place, log);
    if (fewer.size() == 1) {
      expect_gradients(session, sum(all_errors, errors.size(), 0, 1),
                       sum(all_sum_errors, errors.size(), 0, 1));
      continue;
    }
    EXPECT_EQ(carried(session, "error"),
              sum(all_errors, errors.size(), fewer.rank(), fewer.size()));
    EXPECT_EQ(sum(fewer.gather_all(carried(session, "sum_error")), errors.size(), 0, 1),
              sum(all_sum_errors, errors.size(), 0, 1));
    EXPECT_EQ(carried(session, "factor_of_rank_2"), factors);
  }
  world.barrier();
  // Without compression, rank 0 adds all errors to its first gradient.
  Job whole = job;
  whole.parallel.gradient_dtype = reduce::GradientDType::fp32;
  whole.parallel.gradient_rank.value = std::nullopt;
  Session session(whole, data, world);
  Saver(session, world).load_newest(path, log);
  expect_gradients(session, sum(all_errors, errors.size(), 0, 1),
                   sum(all_sum_errors, errors.size(), 0, 1));
  world.barrier();
}

/// On fewer ranks errors are added up; every rank has the same factors.
TEST(CompressionState, ComesBackOnTheSameRanksAndOnFewer) {
  comm::MpiWorld world;
  if (world.size() == 1)
    return;
  Job job = small_job();
  job.batch = {.sequences = 12, .micro_sequences = 1};
  job.run.device = DeviceChoice::cpu;
  job.parallel.shard = layout::Shard::none;
  Job coded = job, factored = job;
  coded.parallel.gradient_dtype = reduce::GradientDType::int8;
  factored.parallel.gradient_rank.value = 2;
  save_and_load(coded, world);
  save_and_load(factored, world);
}

}  // namespace
}  // namespace trireme::session
