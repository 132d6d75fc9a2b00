// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::h5 {
namespace {

TEST(Attribute, KeepsEveryKindOfValue) {
  const test::ScratchDirectory scratch;
  const std::vector<std::string> words = {"eins", "", "dré\xc3\xa9"};
  {
    const File file = create_file(scratch / "a.h5");
    write_attribute(file.get(), "text", "ein Wort");
    write_attribute(file.get(), "empty", "");
    write_attribute(file.get(), "whole", std::numeric_limits<std::int64_t>::min());
    write_attribute(file.get(), "large", std::numeric_limits<std::uint64_t>::max());
    write_attribute(file.get(), "real", 0.1);
    write_attribute(file.get(), "words", words);
    write_attribute(file.get(), "version", std::vector<std::int64_t>{1, 0});
    write_attribute(file.get(), "nothing", std::vector<std::string>{});
  }
  const File file = open_file(scratch / "a.h5");
  EXPECT_EQ(read_attribute<std::string>(file.get(), "text"), "ein Wort");
  EXPECT_EQ(read_attribute<std::string>(file.get(), "empty"), "");
  EXPECT_EQ(read_attribute<std::int64_t>(file.get(), "whole"),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read_attribute<std::uint64_t>(file.get(), "large"),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read_attribute<double>(file.get(), "real"), 0.1);
  EXPECT_EQ(read_attribute<std::vector<std::string>>(file.get(), "words"), words);
  EXPECT_EQ(read_attribute<std::vector<std::int64_t>>(file.get(), "version"),
            (std::vector<std::int64_t>{1, 0}));
  EXPECT_TRUE(read_attribute<std::vector<std::string>>(file.get(), "nothing").empty());
  EXPECT_THAT(attribute_names(file.get()),
              testing::ElementsAre("empty", "large", "nothing", "real", "text", "version", "whole",
                                   "words"));
}

TEST(Attribute, IsReplacedEvenByAnotherKind) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  write_attribute(file.get(), "x", "text");
  write_attribute(file.get(), "x", 2.5);
  EXPECT_EQ(read_attribute<double>(file.get(), "x"), 2.5);
}

TEST(Attribute, RefusesAMissingOneAndAnotherKind) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  write_attribute(file.get(), "text", "12");
  write_attribute(file.get(), "pair", std::vector<std::int64_t>{1, 2});
  EXPECT_FALSE(has_attribute(file.get(), "none"));
  EXPECT_THROW(read_attribute<double>(file.get(), "none"), StorageError);
  EXPECT_THROW(read_attribute<double>(file.get(), "text"), StorageError);
  EXPECT_THROW(read_attribute<std::string>(file.get(), "pair"), StorageError);
  EXPECT_THROW(read_attribute<std::int64_t>(file.get(), "pair"), StorageError);
}

}  // namespace
}  // namespace trireme::h5
