// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tokens/compressed.hpp"
#include "tokens/scratch.hpp"

namespace trireme::tokens {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> texts(const std::string& path,
                               const std::string& field,
                               std::int64_t begin = 0,
                               std::int64_t end = -1) {
  std::vector<std::string> all;
  Documents documents(path, field, begin, end);
  for (TextPiece piece; documents.next(piece);) {
    if (piece.begins_document || all.empty())
      all.emplace_back();
    all.back() += piece.text;
  }
  return all;
}

/// Words, a few million bytes of them.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 20'000'000; ++i) text += "word" + std::to_string(i) + " and\n";
  return text;
}

class DocumentsOf : public Scratch {};

TEST_F(DocumentsOf, CompressedTextIsTheSameText) {
  const std::string text = long_text();
  for (const auto& [name, bytes] :
       {std::pair{"plain", text},
        {"t.gz", gzipped(text)},
        {"t.zst", zstd(text)},
        {"two.gz", gzipped(text.substr(0, 777)) + gzipped(text.substr(777))},
        {"two.zst", zstd(text.substr(0, 777)) + zstd(text.substr(777))}}) {
    const auto found = texts(write(name, bytes), "");
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_TRUE(found[0] == text) << name;
  }
}

TEST_F(DocumentsOf, DamagedOrCutCompressionIsNoShorterText) {
  const std::string text = long_text().substr(0, 100'000);
  for (const auto& [name, bytes] : {std::pair{"t.gz", gzipped(text)}, {"t.zst", zstd(text)}}) {
    const std::string cut = write(std::string("cut-") + name, bytes.substr(0, bytes.size() - 5));
    EXPECT_THAT(user_error([&] { texts(cut, ""); }),
                testing::AllOf(HasSubstr(cut), HasSubstr("cut short")));
    std::string flipped = bytes;
    for (std::size_t i = 30; i < 60; ++i) flipped[i] = static_cast<char>(flipped[i] ^ 0x55);
    const std::string damaged = write(std::string("bad-") + name, flipped);
    EXPECT_THAT(user_error([&] { texts(damaged, ""); }), HasSubstr(damaged));
  }
}

TEST_F(DocumentsOf, JsonLines) {
  const std::string path = write("a.jsonl",
                                 "{\"text\": \"one\\nline\", \"id\": 3}\r\n\n"
                                 "  {\"id\": 4, \"text\": \"\"}\n{\"text\": \"\\u00e9\"}");
  EXPECT_THAT(texts(path, "text"), ElementsAre("one\nline", "", "\xc3\xa9"));
}

TEST_F(DocumentsOf, ABadLineIsNamedWithItsNumber) {
  const std::string good = "{\"text\": \"x\"}\n";
  const auto said = [&](const std::string& line) {
    const std::string path = write("bad.jsonl", good + "\n" + line + "\n" + good);
    return user_error([&] { texts(path, "text"); });
  };
  EXPECT_THAT(said("{\"body\": \"x\"}"),
              HasSubstr("bad.jsonl:3:1: error: the line has no key 'text'"));
  EXPECT_THAT(said("{\"text\": 5}"), HasSubstr("'text' is not text but number"));
  EXPECT_THAT(said("{\"text\": "),
              HasSubstr("bad.jsonl:3:1: error: the line is not a JSON object"));
  EXPECT_THAT(said("[1]"), HasSubstr("is not a JSON object"));
  // In a range that begins later the number counts from the file's begin.
  const std::string path = write("late.jsonl", good + good + "[]\n");
  EXPECT_THAT(user_error([&] { texts(path, "text", boundary(path, "text", 15)); }),
              HasSubstr("late.jsonl:3:1:"));
}

// Ranges between boundaries hold the same text and the same lines, wherever the cuts are wanted.
TEST_F(DocumentsOf, RangesJoinToTheWhole) {
  const std::string text = long_text().substr(0, 300'000);
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  const std::string plain = write("plain", text), json = write("json", lines);
  for (const std::int64_t step : {1'000, 4'099, 65'536, 299'999}) {
    std::string joined;
    for (std::int64_t at = 0, begin = 0; begin < 300'000;) {
      const std::int64_t end = boundary(plain, "", at += step);
      if (end > begin)
        for (const auto& part : texts(plain, "", begin, end)) joined += part;
      begin = std::max(begin, end);
    }
    EXPECT_TRUE(joined == text) << step;
  }
  const auto size = static_cast<std::int64_t>(lines.size());
  std::vector<std::string> all;
  for (std::int64_t at = 0, begin = 0; begin < size;) {
    const std::int64_t end = boundary(json, "text", at += 10'007);
    for (const auto& line : texts(json, "text", begin, end)) all.push_back(line);
    begin = end;
  }
  EXPECT_EQ(all, texts(json, "text"));
}

TEST(Encoding, NamesTheFileForWhichMemoryRanOut) {
  try {
    encoding("dna.txt", [] { throw std::bad_alloc(); });
    FAIL() << "memory did not run out";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("encode dna.txt failed: out of memory"));
  }
}

}  // namespace
}  // namespace trireme::tokens
