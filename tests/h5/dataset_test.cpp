// SPDX-License-Identifier: Apache-2.0
#include "h5/dataset.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/file.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::h5 {
namespace {

TEST(Dataset, GrowsByAppendingAndShrinks) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  Dataset data = Dataset::create_extendible(file.get(), "x", type_of<std::int64_t>(), 3);
  EXPECT_EQ(data.elements(), 0);
  EXPECT_TRUE(data.read_all<std::int64_t>().empty());
  data.append<std::int64_t>(std::vector<std::int64_t>{1, 2, 3, 4, 5});
  data.append<std::int64_t>({});
  data.append<std::int64_t>(std::vector<std::int64_t>{6, 7});
  EXPECT_EQ(data.read_all<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  data.resize(4);
  data.append<std::int64_t>(std::vector<std::int64_t>{9});
  EXPECT_EQ(Dataset::open(file.get(), "x").read_all<std::int64_t>(),
            (std::vector<std::int64_t>{1, 2, 3, 4, 9}));
}

TEST(Dataset, RefusesALengthThatIsNotTrueBeforeItAsksForMemory) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  Dataset numbers = Dataset::create_extendible(file.get(), "x", type_of<std::int64_t>(), 3);
  numbers.append<std::int64_t>(std::vector<std::int64_t>{1, 2, 3, 4});
  EXPECT_EQ(numbers.stored_elements(), 4);
  Dataset texts = Dataset::create_extendible(file.get(), "y", type_of<std::string>(), 3);
  numbers.resize(std::int64_t{1} << 40);
  texts.resize(std::int64_t{1} << 40);
  EXPECT_THROW(static_cast<void>(numbers.stored_elements()), DamagedError);
  EXPECT_THROW(static_cast<void>(numbers.read_all<std::int64_t>()), DamagedError);
  EXPECT_THROW(static_cast<void>(texts.read_all<std::string>()), DamagedError);
}

TEST(Dataset, ReadsAndWritesHyperslabs) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  Dataset data = Dataset::create_fixed(file.get(), "x", type_of<float>(), 10);
  std::vector<float> values(10);
  std::iota(values.begin(), values.end(), 0.0F);
  data.write(0, 10, type_of<float>(), values.data());
  const std::vector<float> patch = {-1.0F, -2.0F};
  data.write(4, 2, type_of<float>(), patch.data());
  std::vector<float> part(4);
  data.read(3, 4, type_of<float>(), part.data());
  EXPECT_EQ(part, (std::vector<float>{3, -1, -2, 6}));
  EXPECT_THROW(data.read(7, 4, type_of<float>(), part.data()), ContractError);
  EXPECT_THROW(data.resize(11), StorageError) << "a fixed dataset does not grow";
}

#ifndef __SANITIZE_ADDRESS__  // needs address space that the address sanitizer uses
TEST(Dataset, MovesStringsWhereNoMebibyteOfMemoryIsLeft) {
  const test::ScratchDirectory scratch;
  const auto move_strings = [&](const char* name) {
    const std::vector<std::string> texts = {"alpha", "beta"};
    const File file = create_file(scratch / name);
    Dataset data = Dataset::create_extendible(file.get(), "names", type_of<std::string>(), 16);
    ::malloc_trim(0);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<std::size_t>(::getpagesize()) + (rlim_t{1} << 19U);
    if (std::string(name) == "tight.h5") {
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    data.append<std::string>(texts);
    if (data.read_all<std::string>() != texts)
      std::exit(4);
  };
  move_strings("warm.h5");  // memory that HDF5 allocates once
  EXPECT_EXIT(
      {
        try {
          move_strings("tight.h5");
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::exit(3);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}
#endif

TEST(Dataset, KeepsStrings) {
  const test::ScratchDirectory scratch;
  const std::vector<std::string> first = {"alpha", ""}, second = {"gamma"};
  {
    const File file = create_file(scratch / "a.h5");
    Dataset data = Dataset::create_extendible(file.get(), "names", type_of<std::string>(), 16);
    data.append<std::string>(first);
    data.append<std::string>(second);
  }
  const File file = open_file(scratch / "a.h5");
  EXPECT_EQ(Dataset::open(file.get(), "names").read_all<std::string>(),
            (std::vector<std::string>{"alpha", "", "gamma"}));
}

TEST(Dataset, KeepsEveryBitOfBf16AndConvertsItToFloat) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  std::vector<std::uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  Dataset data = Dataset::create_fixed(file.get(), "x", type_of(DType::bf16), 65536);
  data.write(0, 65536, type_of(DType::bf16), bits.data());
  std::vector<std::uint16_t> back(65536);
  data.read(0, 65536, type_of(DType::bf16), back.data());
  EXPECT_EQ(back, bits);
  float value = 0;
  data.read(Bf16(-1.5F).bits, 1, type_of<float>(), &value);
  EXPECT_EQ(value, -1.5F);
}

TEST(Dataset, RefusesAMissingOne) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  EXPECT_THROW(Dataset::open(file.get(), "none"), StorageError);
}

TEST(VirtualDataset, ShowsPiecesOfOtherFilesAsOneFromAnyDirectory) {
  const test::ScratchDirectory scratch;
  for (int part = 0; part < 2; ++part) {
    const File file = create_file(scratch / ("part" + std::to_string(part) + ".h5"));
    const auto group = open_group(file.get(), "s");
    const std::vector<float> values(3, static_cast<float>(part + 1));
    Dataset::create_fixed(group.get(), "p", type_of<float>(), 3)
        .write(0, 3, type_of<float>(), values.data());
  }
  {
    const File file = create_file(scratch / "all.h5");
    const VirtualPiece pieces[] = {{0, 3, "part0.h5", "/s/p"}, {3, 3, "part1.h5", "/s/p"}};
    create_virtual(file.get(), "p", type_of<float>(), 6, pieces);
  }
  std::filesystem::rename(scratch / "all.h5", scratch / "renamed.h5");
  const File file = open_file(scratch / "renamed.h5");
  EXPECT_EQ(Dataset::open(file.get(), "p").read_all<float>(),
            (std::vector<float>{1, 1, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace trireme::h5
