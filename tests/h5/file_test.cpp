// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "h5/dataset.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::h5 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const StorageError& error) {
    return error.what();
  }
  return "no StorageError";
}

TEST(File, IsCreatedOnceAndOpensAgain) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a.h5";
  {
    File file = create_file(path);
    write_attribute(file.get(), "answer", std::int64_t{42});
    close(std::move(file));
  }
  EXPECT_EQ(read_attribute<std::int64_t>(open_file(path).get(), "answer"), 42);
  EXPECT_THAT(message_of([&] { create_file(path); }), HasSubstr("exists"));
  EXPECT_EQ(read_attribute<std::int64_t>(open_file(path).get(), "answer"), 42)
      << "a refused create leaves the file alone";
}

TEST(File, NamesTheStatementTheReasonAndTheFileOnFailure) {
  const test::ScratchDirectory scratch;
  EXPECT_THAT(message_of([&] { open_file(scratch / "none.h5"); }),
              AllOf(HasSubstr("open"), HasSubstr("No such file or directory"),
                    HasSubstr(scratch / "none.h5"), HasSubstr("files/descriptor.cpp:")));
  const File file = create_file(scratch / "some.h5");
  EXPECT_THAT(message_of([&] { Dataset::open(open_group(file.get(), "steps").get(), "loss"); }),
              AllOf(HasSubstr("HDF5: H5Dopen2 of /steps/loss in " + scratch / "some.h5"),
                    HasSubstr("doesn't exist"), HasSubstr("h5/dataset.cpp:")));
  EXPECT_THAT(message_of([&] { read_attribute<double>(file.get(), "answer"); }),
              HasSubstr("HDF5: H5Aopen of /answer in " + scratch / "some.h5"));
}

TEST(File, DistinguishesDamageFromARefusalOfTheSystem) {
  const test::ScratchDirectory scratch;
  {
    const File file = create_file(scratch / "some.h5");
    write_attribute(file.get(), "answer", std::int64_t{42});
  }
  const auto refusal = [](const std::string& path) {
    try {
      open_file(path);
    } catch (const DamagedError& error) {
      return std::string("damaged: ") + error.what();
    } catch (const StorageError& error) {
      return std::string(error.what());
    }
    return std::string("opened");
  };
  EXPECT_THAT(refusal(scratch.path()), HasSubstr("a directory is in the place of a file"));
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(scratch / "fifo"), HasSubstr("a FIFO is in the place of a file"))
      << "at once";

  // Too many open files: this file is intact and must not be reported as damaged.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string seen = refusal(scratch / "some.h5");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(seen, AllOf(HasSubstr("Too many open files"), testing::Not(HasSubstr("damaged"))));

  std::filesystem::resize_file(scratch / "some.h5", 700);
  EXPECT_THAT(refusal(scratch / "some.h5"), HasSubstr("damaged: "));
  test::write_bytes(scratch / "text.h5", "this is not an HDF5 file at all");
  EXPECT_THAT(refusal(scratch / "text.h5"), HasSubstr("damaged: "));
}

TEST(File, ReportsAFullDiskAndTheProcessEndsInOrder) {
  const test::ScratchDirectory scratch;
  const auto fill = [&] {
    File file = create_file(scratch / "full.h5");
    {
      auto data = Dataset::create_extendible(file.get(), "x", type_of<double>(), 64);
      for (int i = 0; i < 10'000; ++i) data.append<double>(std::vector<double>(100, 1.0));
    }
    close(std::move(file));
  };
  EXPECT_EXIT(test::exit_with_a_full_disk(1'000'000, fill), testing::ExitedWithCode(3),
              "File too large");
}

TEST(File, HasDimensionScalesAsTheirSpecificationAsks) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "scales.h5");
  std::vector<Dataset> columns;
  for (const char* name : {"step", "loss", "seconds"})
    columns.push_back(Dataset::create_extendible(file.get(), name, type_of<double>(), 64));
  make_scale(columns[0], "step", std::span(columns).subspan(1));
  struct Use {
    hobj_ref_t dataset;
    int dimension;
  } uses[2]{};
  const Attribute list(TRIREME_H5(H5Aopen(columns[0].id(), "REFERENCE_LIST", H5P_DEFAULT)));
  const Type type(TRIREME_H5(H5Aget_type(list.get())));
  TRIREME_H5(H5Aread(list.get(), type.get(), uses));
  for (std::size_t i = 0; i < 2; ++i) {
    const Handle<&H5Oclose> used(
        TRIREME_H5(H5Rdereference2(file.get(), H5P_DEFAULT, H5R_OBJECT, &uses[i].dataset)));
    char name[16] = {};
    TRIREME_H5(H5Iget_name(used.get(), name, sizeof name));
    EXPECT_EQ(std::string(name), i == 0 ? "/loss" : "/seconds");
    EXPECT_EQ(uses[i].dimension, 0);
    EXPECT_TRUE(has_attribute(columns[i + 1].id(), "DIMENSION_LIST"));
  }
  EXPECT_TRUE(has_attribute(columns[0].id(), "CLASS"));
  EXPECT_FALSE(has_attribute(columns[0].id(), "DIMENSION_LIST"));
}

TEST(File, RefusesWhatLeadsOutOfItsDirectory) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "hostile.h5";
  const auto refusal = [&](const std::function<void(hid_t)>& plant) {
    std::filesystem::remove(path);
    {
      const File file = create_file(path);
      open_group(file.get(), "a/b");
      plant(file.get());
    }
    const std::string why = message_of([&] { open_file(path); });
    EXPECT_THAT(why, HasSubstr("refused: "));
    return why;
  };
  EXPECT_THAT(refusal([](hid_t file) {
                TRIREME_H5(H5Lcreate_external("/etc/other.h5", "/steps", file, "a/b/steps",
                                              H5P_DEFAULT, H5P_DEFAULT));
              }),
              HasSubstr("/a/b/steps is a link to another file"));
  const hsize_t ten[] = {10};
  const Space line(TRIREME_H5(H5Screate_simple(1, ten, nullptr)));
  EXPECT_THAT(
      refusal([&](hid_t file) {
        const Properties properties(TRIREME_H5(H5Pcreate(H5P_DATASET_CREATE)));
        TRIREME_H5(H5Pset_external(properties.get(), "raw.bin", 0, 40));
        const DatasetId made(TRIREME_H5(H5Dcreate2(file, "a/raw", H5T_NATIVE_INT, line.get(),
                                                   H5P_DEFAULT, properties.get(), H5P_DEFAULT)));
      }),
      HasSubstr("/a/raw keeps its data in another file"));
  for (const char* source : {"../other.h5", "/etc/other.h5"})
    EXPECT_THAT(refusal([&](hid_t file) {
                  const VirtualPiece piece{.begin = 0, .count = 10, .file = source, .dataset = "x"};
                  create_virtual(file, "shown", type_of<float>(), 10, {&piece, 1});
                }),
                HasSubstr(std::string("/shown is a view of the file ") + source));
  // The object kinds that checkpoints contain are accepted.
  std::filesystem::remove(path);
  {
    const File file = create_file(path);
    const VirtualPiece piece{.begin = 0, .count = 10, .file = "rank-00000.h5", .dataset = "x"};
    create_virtual(file.get(), "shown", type_of<float>(), 10, {&piece, 1});
  }
  open_file(path);
}

TEST(File, PrintsNothingOfItsOwn) {
  const test::ScratchDirectory scratch;
  testing::internal::CaptureStderr();
  message_of([&] { open_file(scratch / "none.h5"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Turns, LetThreadsWorkOnTheirOwnFilesAtTheSameTime) {
  const test::ScratchDirectory scratch;
  const auto fill = [&](const std::string& name, double value) {
    for (int round = 0; round < 20; ++round) {
      File file = create_file(scratch / (name + std::to_string(round)));
      {  // destroyed before its file
        auto data = Dataset::create_extendible(file.get(), "a", type_of<double>(), 64);
        for (int i = 0; i < 20; ++i) data.append<double>(std::vector<double>{value});
        write_attribute(data.id(), "of", name);
      }
      EXPECT_THAT(message_of([&] { Dataset::open(file.get(), "none"); }), HasSubstr("none"));
      close(std::move(file));
    }
  };
  {
    const std::jthread other([&] { fill("x", 1.5); });
    fill("y", 2.5);
  }
  for (const char* name : {"x", "y"}) {
    const File file = open_file(scratch / (name + std::string("19")));
    const Dataset data = Dataset::open(file.get(), "a");
    EXPECT_EQ(data.read_all<double>(), std::vector<double>(20, *name == 'x' ? 1.5 : 2.5));
    EXPECT_EQ(read_attribute<std::string>(data.id(), "of"), name);
  }
}

TEST(Groups, AreMadeWithTheirParents) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  EXPECT_FALSE(exists(file.get(), "a/b/c"));
  open_group(file.get(), "a/b/c");
  EXPECT_TRUE(exists(file.get(), "a/b/c"));
  EXPECT_FALSE(exists(file.get(), "a/c"));
  open_group(file.get(), "a/b/c");
}

}  // namespace
}  // namespace trireme::h5
