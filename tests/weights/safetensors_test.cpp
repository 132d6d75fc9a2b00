// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "weights/folder.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;

std::string header_refusal(const std::string& bytes) {
  const test::ScratchDirectory directory;
  const std::string path = directory / "x.safetensors";
  test::write_bytes(path, bytes);
  const std::string told =
      mistakes_of([&] { static_cast<void>(read_safetensors(files::InputFile(path))); });
  if (!told.empty()) {
    EXPECT_THAT(told, HasSubstr("x.safetensors"));
  }
  return told;
}

SafetensorsHeader header_of(const std::string& bytes) {
  const test::ScratchDirectory directory;
  test::write_bytes(directory / "x", bytes);
  return read_safetensors(files::InputFile(directory / "x"));
}

TEST(Safetensors, ReadsTheFormatsOwnExample) {
  const std::string header = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
  ASSERT_EQ(header.size(), 60U);
  const auto found = header_of(safetensors_of(header, std::string(16, '\0')));
  ASSERT_EQ(found.tensors.size(), 1U);
  EXPECT_EQ(found.tensors[0].name, "test");
  EXPECT_EQ(found.tensors[0].dtype, "I32");
  EXPECT_EQ(found.tensors[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(found.tensors[0].begin, 68);
  EXPECT_EQ(found.tensors[0].end, 84);
}

TEST(Safetensors, TakesWhiteSpaceAroundTheHeader) {
  EXPECT_TRUE(header_of(safetensors_of("{}\r \t\n", "")).tensors.empty());
  EXPECT_TRUE(header_of(safetensors_of("\n {}", "")).tensors.empty());
}

TEST(Safetensors, SortsByOffsetAndKeepsMetadata) {
  const auto found = header_of(safetensors_of(
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
      R"("none":{"dtype":"F64","shape":[3,0],"data_offsets":[6,6]},)"
      R"("half":{"dtype":"F4","shape":[2],"data_offsets":[6,7]}})",
      "1234567"));
  ASSERT_EQ(found.tensors.size(), 4U);
  EXPECT_EQ(found.tensors[0].name, "b");
  EXPECT_EQ(found.tensors[1].name, "a");
  EXPECT_EQ(found.metadata.at(0).second, "pt");
}

struct BadHeader {
  const char* name;
  const char* header;
  std::size_t data_bytes;
  const char* told;
};

class BadHeaders : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, AreRefusedWithTheReason) {
  const BadHeader& bad = GetParam();
  EXPECT_THAT(header_refusal(safetensors_of(bad.header, std::string(bad.data_bytes, 'x'))),
              HasSubstr(bad.told));
}

constexpr BadHeader bad_headers[] = {
    {"NoJson", "hello", 0, "this is not JSON"},
    {"Cut", R"({"a":{"dtype":)", 0, "the JSON ends too early"},
    {"Array", "[]", 0, "the header is not a JSON object"},
    {"SameKeyTwice",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "the key occurs twice"},
    {"SameFieldTwice", R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
     "the key occurs twice"},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
     5, "they overlap"},
    {"SameBytesTwice",
     R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
     3, "they overlap"},
    {"Hole",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
     5, "there is a gap between them"},
    {"HoleAtTheFront", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     "there is a gap between them"},
    {"BytesAtTheEnd", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3,
     "1 bytes follow"},
    {"BeyondTheFile", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 3,
     "but the file has 3"},
    {"Backwards", R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[2,1]}})", 2, "begin <= end"},
    {"Negative", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
     "not an integer from 0"},
    {"FractionOfAnExtent", R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1,
     "not an integer from 0"},
    {"ShapeOverflows",
     R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", 1,
     "the number of elements of its shape overflows"},
    {"ShapeOverflowsToTheRightSize",
     R"({"a":{"dtype":"U8","shape":[9223372036854775809,2],"data_offsets":[0,2]}})", 2,
     "not an integer from 0"},
    {"BytesOverflow", R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})",
     8, "overflows"},
    {"OffsetOverflows",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999]}})", 1,
     "are not two integers"},
    {"WrongSize", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
     "needs 8 bytes, but its offsets are 4 bytes apart"},
    {"HalfAByte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "needs 1 bytes"},
    {"UnknownDtype", R"({"a":{"dtype":"F128","shape":[1],"data_offsets":[0,16]}})", 16,
     "unknown dtype 'F128'"},
    {"NoDtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "its dtype is not a string"},
    {"NoShape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "its shape is not a list"},
    {"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1,
     "are not two integers"},
    {"MoreFields", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"scale":2}})", 1,
     "unknown key 'scale' of a tensor"},
    {"TensorIsText", R"({"a":"U8"})", 0, "expected an object"},
    {"MetadataIsNoText", R"({"__metadata__":{"format":1}})", 0, "expected a string"},
    {"Deep", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, "nested more than"}};

INSTANTIATE_TEST_SUITE_P(All, BadHeaders, ::testing::ValuesIn(bad_headers), [](const auto& one) {
  return one.param.name;
});

TEST(Safetensors, ReportsAllMistakesAtOnce) {
  const std::string told = header_refusal(safetensors_of(
      R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})",
      "x"));
  EXPECT_THAT(told, HasSubstr("a: unknown dtype"));
  EXPECT_THAT(told, HasSubstr("b: U8 [2] needs 2 bytes"));
}

TEST(Safetensors, RefusesWrongLengths) {
  EXPECT_THAT(header_refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(header_refusal("1234567"), HasSubstr("7 bytes"));
  const auto with_length = [](std::uint64_t length) {
    return std::string(reinterpret_cast<const char*>(&length), 8) + "{}";
  };
  EXPECT_THAT(header_refusal(with_length(3)), HasSubstr("the file was truncated"));
  EXPECT_THAT(header_refusal(with_length(100'000'001)), HasSubstr("at most 100000000"));
  EXPECT_THAT(header_refusal(with_length(~std::uint64_t{0})), HasSubstr("at most 100000000"));
  EXPECT_EQ(header_refusal(with_length(2)), "");
}

}  // namespace
}  // namespace trireme::weights
