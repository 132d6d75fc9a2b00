// SPDX-License-Identifier: Apache-2.0
#include "comm/control/together.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

namespace {

int num_gathers = 0;  // NOLINT(*-avoid-non-const-global-variables)

}  // namespace

// MPI's profiling interface: this definition replaces MPI's function.
extern "C" int MPI_Iallgather(const void* send,
                              int send_count,
                              MPI_Datatype send_type,
                              void* receive,
                              int receive_count,
                              MPI_Datatype receive_type,
                              MPI_Comm comm,
                              MPI_Request* request) {
  ++num_gathers;
  return PMPI_Iallgather(send, send_count, send_type, receive, receive_count, receive_type, comm,
                         request);
}

namespace trireme::comm {
namespace {

TEST(Together, PassesWhenNoRankFails) {
  const auto world = make_mpi_world();
  int done = 0;
  together(*world, [&] { ++done; });
  on_first_rank(*world, [&] { ++done; });
  EXPECT_EQ(done, world->rank() == 0 ? 2 : 1);
}

TEST(Together, GathersFromAllRanksOnlyWhenSomethingFailed) {
  const auto world = make_mpi_world();
  num_gathers = 0;
  for (int i = 0; i < 3; ++i) together(*world, [] {});
  EXPECT_EQ(num_gathers, 0);
  EXPECT_THROW(together(*world, [] { throw UserError("no"); }), UserError);
  EXPECT_GT(num_gathers, 0);
}

TEST(Together, AUserErrorMayContainAnyBytes) {
  const auto world = make_mpi_world();
  const std::string quoted(
      "a\x1e"
      "b\x1f\n\0c",
      8);
  try {
    on_first_rank(*world, [&] {
      throw UserError(std::vector<Diagnostic>{{{"x.safetensors", 0, 0}, quoted, quoted}});
    });
    FAIL() << "no error on rank " << world->rank();
  } catch (const UserError& error) {
    ASSERT_EQ(error.findings().size(), 1U);
    EXPECT_EQ(error.findings()[0].subject, quoted);
    EXPECT_EQ(error.findings()[0].text, quoted);
  }
}

TEST(Together, AUserErrorOfTheLastRankIsTheSameOnAllRanks) {
  const auto world = make_mpi_world();
  const int last = world->size() - 1;
  try {
    together(*world, [&] {
      if (world->rank() == last)
        throw UserError({{{"deck.yaml", 3, 17}, "run.steps", "first"}, {{}, "", "second: a b"}});
    });
    FAIL() << "no error on rank " << world->rank();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "deck.yaml:3:17: error: run.steps: first\nerror: second: a b");
    ASSERT_EQ(error.findings().size(), 2U);
    EXPECT_EQ(error.findings()[0].place.column, 17);
  }
}

TEST(Together, AnEnvironmentErrorIsPrintedByOneRankOnly) {
  const auto world = make_mpi_world();
  for (const bool all : {false, true}) {
    const int speaker = all ? 0 : world->size() - 1;
    bool spoke = false;
    try {
      together(*world, [&] {
        if (all || world->rank() == speaker)
          throw StorageError("disk", "write", "full", __FILE__, __LINE__);
      });
      FAIL() << "no error on rank " << world->rank();
    } catch (const FailedElsewhere&) {
      EXPECT_NE(world->rank(), speaker);
    } catch (const StorageError&) {
      spoke = true;
    }
    EXPECT_EQ(spoke, world->rank() == speaker);
  }
}

TEST(Together, TheNextCollectiveWorks) {
  const auto world = make_mpi_world();
  EXPECT_THROW(on_first_rank(*world, [] { throw UserError("no"); }), UserError);
  std::int64_t one[] = {1};
  world->sum(one);
  EXPECT_EQ(one[0], world->size());
}

}  // namespace
}  // namespace trireme::comm
