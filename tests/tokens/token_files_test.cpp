// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_files.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "base/packing.hpp"

#include "tokens/check.hpp"
#include "tokens/scratch.hpp"

namespace trireme::tokens {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class Token>
std::string shard(std::int32_t magic, std::int32_t version, const std::vector<Token>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  std::string bytes(1024 + tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), header.data(), 1024);
  if (!tokens.empty())
    std::memcpy(bytes.data() + 1024, tokens.data(), tokens.size() * sizeof(Token));
  return bytes;
}
std::string gpt2(const std::vector<std::uint16_t>& tokens) {
  return shard(20240520, 1, tokens);
}

using TokenShards = Scratch;

constexpr std::int64_t any_token = std::int64_t{1} << 32;

std::unique_ptr<TokenStream> open(const std::vector<std::string>& paths, std::int64_t vocabulary) {
  return open_token_files(check(paths, {.vocabulary = any_token}), vocabulary);
}

std::vector<std::int32_t> all(const TokenStream& stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

// 20240520 is 0x0134d888, 20240801 is 0x0134d9a1; little-endian on disk.
TEST_F(TokenShards, GoldenBytes) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  bytes += std::string("\x50\xc4\x00\x00\x39\x30", 6);  // 50256, 0, 12345
  const auto stream = open({write("a.bin", bytes)}, 50257);
  EXPECT_THAT(all(*stream), ElementsAre(50256, 0, 12345));
  EXPECT_EQ(stream->vocabulary(), 50257);

  bytes.resize(1024);
  bytes.replace(0, 12, std::string("\xa1\xd9\x34\x01\x07\0\0\0\x02\0\0\0", 12));
  bytes += std::string("\xff\xf4\x01\x00\x01\0\0\0", 8);  // 128255, 1
  EXPECT_THAT(all(*open({write("b.bin", bytes)}, 128256)), ElementsAre(128255, 1));
}

TEST_F(TokenShards, SeveralAreOneStream) {
  const std::vector<std::string> paths{write("1", gpt2({0, 1, 2})), write("2", gpt2({3})),
                                       write("3", shard<std::uint32_t>(20240801, 7, {4, 5, 6, 7}))};
  const auto stream = open(paths, 8);
  ASSERT_EQ(stream->size(), 8);
  for (std::int64_t begin = 0; begin <= 8; ++begin)
    for (std::int64_t end = begin; end <= 8; ++end) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - begin)), wanted(tokens);
      std::iota(wanted.begin(), wanted.end(), static_cast<std::int32_t>(begin));
      stream->read(begin, tokens);
      EXPECT_EQ(tokens, wanted);
    }
}

TEST_F(TokenShards, EveryBadShardAtOnce) {
  const std::string good = gpt2({1, 2, 3});
  const std::vector<std::string> paths{write("good", good),
                                       write("short", good.substr(0, good.size() - 1)),
                                       write("long", good + "x"),
                                       write("tiny", "x"),
                                       write("version", shard<std::uint16_t>(20240520, 2, {1})),
                                       write("magic", shard<std::uint16_t>(20240326, 1, {1})),
                                       write("none", gpt2({}))};
  const std::string text = user_error([&] { open(paths, 100); });
  EXPECT_THAT(text, HasSubstr(paths[1] + ": error: token shard is truncated: 1029 bytes where its "
                                         "header says 1030"));
  EXPECT_THAT(text, HasSubstr(paths[2] + ": error: token shard is too long: 1031"));
  EXPECT_THAT(text, HasSubstr(paths[3] + ": error: is not a token shard: 1 bytes"));
  EXPECT_THAT(text, HasSubstr("version 2, this program reads version 1"));
  EXPECT_THAT(text, HasSubstr("starts with 20240326"));
  EXPECT_THAT(text, HasSubstr("shard of 0 tokens"));
  EXPECT_THAT(text, Not(HasSubstr(paths[0])));
}

TEST_F(TokenShards, TokensOutsideTheVocabulary) {
  std::vector<std::uint16_t> tokens(10'000, 5);
  tokens[9'000] = 50257;
  tokens[9'500] = 60000;
  const std::vector<std::string> paths{
      write("a", gpt2({7})), write("b", gpt2(tokens)),
      write("c", shard<std::uint32_t>(20240801, 7, {0x80000000U}))};
  EXPECT_NO_THROW(check(paths, {.vocabulary = any_token}));
  const std::string text = user_error([&] { check(paths, {.vocabulary = 50257}); });
  EXPECT_THAT(text, HasSubstr(paths[1] +
                              ": error: token 9500 is 60000, model.vocabulary is 50257 (byte 20024 "
                              "of the file)"));
  EXPECT_THAT(text, HasSubstr(paths[2] + ": error: token 0 is 2147483648"));
  EXPECT_THAT(text, Not(HasSubstr(paths[0])));

  // Reading from a stream that was not checked still never gives an invalid token.
  const auto stream = open(paths, 50257);
  std::vector<std::int32_t> out(100);
  EXPECT_NO_THROW(stream->read(8000, out));
  EXPECT_THAT(storage_error([&] { stream->read(8950, out); }), HasSubstr(paths[1]));
}

TEST_F(TokenShards, TheContentHashSeesEveryToken) {
  std::vector<std::uint16_t> tokens(100'000, 5);
  const std::string path = write("a", gpt2(tokens));
  std::set<std::uint64_t> hashes{open({path}, 100)->content_hash()};
  for (const std::size_t place : {0U, 40'000U, 99'999U}) {
    tokens[place] = 6;
    write("a", gpt2(tokens));
    EXPECT_TRUE(hashes.insert(open({path}, 100)->content_hash()).second) << place;
  }
}

TEST_F(TokenShards, TellHowMuchOfThemWasChecked) {
  const std::vector<std::uint16_t> tokens(3'000'000, 5);
  const std::vector<std::string> paths{write("a", gpt2({7})), write("b", gpt2(tokens))};
  std::vector<std::int64_t> done;
  std::int64_t of = 0;
  check(paths, {.vocabulary = 100, .progress = [&](std::int64_t bytes, std::int64_t all) {
                  done.push_back(bytes);
                  of = all;
                }});
  EXPECT_TRUE(std::ranges::is_sorted(done));
  ASSERT_GT(done.size(), 2U);
  EXPECT_GT(of, 6'000'000);
  EXPECT_GE(done.back(), 6'000'000);
  EXPECT_LE(done.back(), of);
}

TEST_F(TokenShards, AShardThatChangesUnderTheRunIsFoundWhenItIsRead) {
  std::vector<std::uint16_t> tokens(100'000, 5);
  const std::vector<std::string> paths{write("a", gpt2({7, 8})), write("b", gpt2(tokens))};
  const auto found = check(paths, {.vocabulary = 100, .index_directory = at("cache")});
  tokens[70'000] ^= 1;
  write("b", gpt2(tokens));
  const auto stream = open_token_files(found, 100);
  std::vector<std::int32_t> out(10);
  stream->read(0, out);
  EXPECT_THAT(storage_error([&] { stream->read(69'000, out); }),
              testing::AllOf(HasSubstr(paths[1]), HasSubstr("do not match their hash")));
  // A file truncated while it is open gives an error with its name instead of a signal.
  std::filesystem::resize_file(paths[1], 2000);
  EXPECT_THAT(storage_error([&] { stream->read(99'000, out); }), HasSubstr(paths[1]));
  // The length changes between the scan and the first read.
  write("b", gpt2(std::vector<std::uint16_t>(10, 5)));
  EXPECT_THAT(storage_error([&] { open_token_files(found, 100)->read(2, out); }),
              HasSubstr("it has 1044 bytes, and had 201024 when the run started"));
}

TEST_F(TokenShards, WhatOneRankFoundTravels) {
  const std::vector<std::string> paths{write("a", gpt2({7, 8})), write("b", gpt2({7, 9, 7}))};
  const auto found = check(paths, {.vocabulary = 100, .row_context = 1, .end_of_text = 7});
  EXPECT_THAT(found.rows, ElementsAre(0, 2));
  const auto copy = unpack<TokenFiles>(pack(found));
  EXPECT_EQ(copy.files.back().hash, found.files.back().hash);
  EXPECT_EQ(copy.rows, found.rows);
  EXPECT_THAT(all(*open_token_files(copy, 100)), ElementsAre(7, 8, 7, 9, 7));
}

// A file that was read once is not read again, because it has an index, until it changes.
TEST_F(TokenShards, AFileIsReadOnceForItsIndex) {
  std::vector<std::uint16_t> tokens(100'000, 5);
  tokens[70'000] = 7;
  const std::vector<std::string> paths{write("a", gpt2({7, 8})), write("b", gpt2(tokens))};
  std::int64_t read = 0;
  TokenRequirements requirements{.vocabulary = 100,
                                 .row_context = 60'000,
                                 .end_of_text = 7,
                                 .index_directory = at("cache"),
                                 .progress = [&](std::int64_t done, std::int64_t) { read = done; }};
  const auto look = [&] {
    read = 0;
    return check(paths, requirements);
  };
  const auto first = look();
  EXPECT_EQ(read, 4 + 200'000);
  EXPECT_EQ(first.documents, 2);
  EXPECT_THAT(first.rows, ElementsAre(0));
  const auto second = look();
  EXPECT_EQ(read, 0);
  EXPECT_EQ(second.rows, first.rows);
  EXPECT_EQ(second.documents, first.documents);
  EXPECT_EQ(open_token_files(second, 100)->content_hash(),
            open_token_files(first, 100)->content_hash());

  // The index still knows the largest token.
  requirements.vocabulary = 8;
  EXPECT_THAT(user_error(look), HasSubstr("token 1 is 8, model.vocabulary is 8"));
  EXPECT_EQ(read, 0);
  requirements.vocabulary = 100;
  // Another end-of-text token needs another search, and a replaced file another read.
  requirements.end_of_text = 8;
  EXPECT_EQ(look().documents, 1);
  EXPECT_EQ(read, 4 + 200'000);
  std::filesystem::remove(paths[0]);
  write("a", gpt2({8, 8}));
  EXPECT_EQ(look().documents, 2);
  EXPECT_EQ(read, 4);
}

// A damaged index is ignored, and damage that occurs later is an error with the file's name.
TEST_F(TokenShards, ADamagedIndexIsNotBelieved) {
  const std::vector<std::string> paths{write("a", gpt2(std::vector<std::uint16_t>(50'000, 7)))};
  const TokenRequirements requirements{
      .vocabulary = 100, .row_context = 20'000, .end_of_text = 7, .index_directory = at("cache")};
  const std::string index = check(paths, requirements).files.front().index;
  const std::string whole = content(index);
  ASSERT_EQ(whole.size(), 128 + 2 * 8 + 50'000 * 8);
  for (std::size_t byte = 8; byte < 128; byte += 5) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x40);
    std::ofstream(index, std::ios::binary) << damaged;
    check(paths, requirements);
    ASSERT_EQ(content(index), whole) << byte;
  }
  std::filesystem::resize_file(index, 100);
  check(paths, requirements);
  EXPECT_EQ(content(index), whole);
  std::ofstream(index) << "somebody's only copy";
  EXPECT_THAT(user_error([&] { check(paths, requirements); }), HasSubstr(index));
  EXPECT_EQ(content(index), "somebody's only copy");
  std::ofstream(index, std::ios::binary) << whole;

  std::string damaged = whole;
  damaged[128] = static_cast<char>(damaged[128] ^ 1);  // the hash of the first block
  std::ofstream(index, std::ios::binary) << damaged;
  const auto stream = open_token_files(check(paths, requirements), 100);
  std::vector<std::int32_t> out(10);
  EXPECT_THAT(storage_error([&] { stream->read(0, out); }), HasSubstr(index));
  damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);  // a document
  std::ofstream(index, std::ios::binary) << damaged;
  EXPECT_THAT(storage_error([&] { check(paths, requirements); }), HasSubstr(index));
}

// A file is not opened before it is read.
TEST_F(TokenShards, FilesAreOpenedWhenTheyAreRead) {
  const std::vector<std::string> paths{write("a", gpt2({1, 2})), write("b", gpt2({3, 4}))};
  const auto found = check(paths, {.vocabulary = 100});
  const auto stream = open_token_files(found, 100);
  std::filesystem::remove(paths[1]);
  std::vector<std::int32_t> out(2);
  stream->read(0, out);
  EXPECT_THAT(out, ElementsAre(1, 2));
  EXPECT_THAT(storage_error([&] { stream->read(2, out); }), HasSubstr(paths[1]));
}

TEST_F(TokenShards, MoreFilesThanMayBeOpenAtATime) {
  std::vector<std::string> paths;
  for (std::uint16_t i = 0; i < FileTokens::most_open() + 10; ++i)
    paths.push_back(write(fmt::format("{:04}", i), gpt2({i})));
  const auto stream = open(paths, any_token);
  for (int round = 0; round < 2; ++round)
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(paths.size()); ++i) {
      std::vector<std::int32_t> out(1);
      stream->read(i, out);
      ASSERT_EQ(out[0], i);
    }
}

TEST_F(TokenShards, RawNumbers) {
  const std::string path = write("raw.bin", std::string("\x01\0\x02\0\xff\xff\x03\0", 8));
  const auto two = check({path}, {.format = TokenFormat::uint16, .vocabulary = 65536});
  EXPECT_THAT(all(*open_token_files(two, 65536)), ElementsAre(1, 2, 65535, 3));
  const auto four = check({path}, {.format = TokenFormat::uint32, .vocabulary = any_token});
  EXPECT_EQ(open_token_files(four, any_token)->size(), 2);
  const std::string odd = write("odd.bin", "12345");
  EXPECT_THAT(
      user_error([&] { check({odd}, {.format = TokenFormat::uint16, .vocabulary = 65536}); }),
      HasSubstr(odd + ": error: has 5 bytes, no multiple of the 2 of a uint16 token"));
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + data;
}

TEST_F(TokenShards, NumpyArraysAreReadWithTheirHeader) {
  const auto ids = [&](const std::string& type, const std::string& shape, const auto& values) {
    const std::string data(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof values[0]);
    return all(*open({write("a.npy", npy(type, shape, data))}, any_token));
  };
  EXPECT_THAT(ids("<u2", "(3,)", std::vector<std::uint16_t>{1, 50256, 65535}),
              ElementsAre(1, 50256, 65535));
  EXPECT_THAT(ids("|u1", "(2,)", std::vector<std::uint8_t>{1, 255}), ElementsAre(1, 255));
  EXPECT_THAT(ids("<i4", "(2, 2)", std::vector<std::int32_t>{1, 2, 3, 151'935}),
              ElementsAre(1, 2, 3, 151'935));
  EXPECT_THAT(ids("<i8", "(2,)", std::vector<std::int64_t>{7, 1}), ElementsAre(7, 1));
  EXPECT_THAT(ids("<u8", "()", std::vector<std::uint64_t>{9}), ElementsAre(9));
}

TEST_F(TokenShards, NumpyArraysThatAreNoTokensSaySo) {
  const auto said = [&](const std::string& type, const std::string& shape, std::string data,
                        std::int64_t vocabulary = any_token) {
    const std::string path = write("a.npy", npy(type, shape, data));
    return user_error([&] { check({path}, {.vocabulary = vocabulary}); });
  };
  EXPECT_THAT(said("<f4", "(1,)", "abcd"), HasSubstr("is a NumPy array of type '<f4'"));
  EXPECT_THAT(said(">u2", "(2,)", "abcd"), HasSubstr("little-endian"));
  EXPECT_THAT(said("<u2", "(3,)", "abcd"), HasSubstr("3 elements of 2 bytes, but 4 bytes follow"));
  EXPECT_THAT(said("<u2", "(-2,)", "abcd"), HasSubstr("without a valid shape"));
  EXPECT_THAT(said("<u2", "(9223372036854775807, 2)", "abcd"), HasSubstr("without a valid shape"));
  EXPECT_THAT(said("<u2", "(0,)", ""), HasSubstr("without elements"));
  // -1 would be id 65535, below the vocabulary, if the type were unsigned.
  EXPECT_THAT(said("<i2", "(2,)", std::string("\1\0\xff\xff", 4), 151'936),
              HasSubstr("token 1 is -1, model.vocabulary is 151936 (byte 130 of the file)"));
  EXPECT_THAT(said("<i8", "(1,)", std::string(8, '\xff'), 151'936), HasSubstr("token 0 is -1"));
  const std::string array = write("b.npy", npy("<u2", "(2,)", "abcd"));
  EXPECT_THAT(
      user_error([&] { check({array}, {.format = TokenFormat::uint16, .vocabulary = 65536}); }),
      HasSubstr("is a NumPy array with a header, not raw numbers. Remove format: uint16"));
}

TEST_F(TokenShards, FilesOfOtherKindsAreNotTokens) {
  for (const auto& [bytes, name] : {std::pair{gpt2({1, 2}), "a token file of llm.c with a header"},
                                    {std::string("PAR1\x15\0\0\0", 8), "a Parquet file"},
                                    {std::string("PK\3\4\0\0\0\0", 8), "a zip archive"},
                                    {std::string("\x1f\x8b\x08\0\0\0\0\0", 8), "gzip data"},
                                    {std::string("\x89HDF\r\n\x1a\n", 8), "an HDF5 file"},
                                    {std::string("MMIDIDX\0\0\0", 10), "an index of Megatron"}}) {
    const std::string path = write("x.bin", bytes);
    EXPECT_THAT(
        user_error([&] { check({path}, {.format = TokenFormat::uint16, .vocabulary = 65536}); }),
        HasSubstr(name));
  }
}

// Holes of a sparse file read as zeros: 2^31 + 5 tokens need only a few KiB of disk.
TEST_F(TokenShards, MoreTokensThan31BitsCount) {
  const std::string path = write("huge.bin", "");
  const std::int64_t tokens = (std::int64_t{1} << 31) + 5;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(2 * tokens));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * (tokens - 2));
    file.write("\x07\0\x09\0", 4);
  }
  const TokenRequirements requirements{.format = TokenFormat::uint16, .vocabulary = 10};
  const auto stream = open_token_files(check({path}, requirements), 10);
  ASSERT_EQ(stream->size(), tokens);
  std::vector<std::int32_t> out(3);
  stream->read(tokens - 3, out);
  EXPECT_THAT(out, ElementsAre(0, 7, 9));
}

}  // namespace
}  // namespace trireme::tokens
