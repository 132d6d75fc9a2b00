// SPDX-License-Identifier: Apache-2.0
// main() of every test that declares rank counts: MPI with GoogleTest, one result for all ranks.
//
// An exception on one rank would leave the others waiting in a collective until the time-out. With
// more than one rank, GoogleTest therefore does not catch it: the process dies, and mpirun ends the
// job at once.
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  testing::InitGoogleTest(&argc, argv);
  if (size > 1)
    testing::GTEST_FLAG(catch_exceptions) = false;
  if (rank != 0)
    delete testing::UnitTest::GetInstance()->listeners().Release(
        testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const int mine = RUN_ALL_TESTS();

  std::vector<int> failed(static_cast<std::size_t>(size), 0);
  MPI_Gather(&mine, 1, MPI_INT, failed.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0 && mine != 0) {
    const auto& unit = *testing::UnitTest::GetInstance();
    for (int s = 0; s < unit.total_test_suite_count(); ++s) {
      const auto& suite = *unit.GetTestSuite(s);
      for (int t = 0; t < suite.total_test_count(); ++t) {
        const auto& result = *suite.GetTestInfo(t)->result();
        for (int p = 0; p < result.total_part_count(); ++p)
          if (result.GetTestPartResult(p).failed())
            std::fprintf(stderr, "[rank %d] %s.%s: %s\n", rank, suite.name(),
                         suite.GetTestInfo(t)->name(), result.GetTestPartResult(p).message());
      }
    }
  }
  int worst = 0;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && worst != 0) {
    std::string ranks;
    for (int r = 0; r < size; ++r)
      if (failed[static_cast<std::size_t>(r)] != 0)
        ranks += " " + std::to_string(r);
    std::fprintf(stderr, "failed on ranks:%s\n", ranks.c_str());
  }
  MPI_Finalize();
  return worst;
}
