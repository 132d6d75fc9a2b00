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
  Documents documents(path, TextFormat(field), begin, end);
  for (TextPiece piece; documents.next(piece);) {
    if (piece.begins_document || all.empty())
      all.emplace_back();
    all.back() += piece.text;
  }
  return all;
}

/// A few million bytes of words.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 9'000'000; ++i) text += "word" + std::to_string(i) + " and\n";
  return text;
}

class DocumentsOf : public Scratch {};

TEST_F(DocumentsOf, CompressedTextIsTheSameText) {
  const std::string text = long_text();
  for (const auto& [name, bytes] :
       {std::pair{"plain", text},
        {"t.gz", gzipped(text)},
        {"t.zst", zstd(text)},
        {"t.bz2", bzip2(text)},
        {"t.xz", xz(text)},
        {"T.JSONL.GZ", gzipped(text)},
        {"no-ending", zstd(text)},
        {"two.gz", gzipped(text.substr(0, 777)) + gzipped(text.substr(777))},
        {"padded.gz", gzipped(text) + std::string(512, '\0')},
        {"two-padded.gz", gzipped(text.substr(0, 777)) + '\0' + gzipped(text.substr(777))},
        {"two.zst", zstd(text.substr(0, 777)) + zstd(text.substr(777))},
        {"two.bz2", bzip2(text.substr(0, 777)) + bzip2(text.substr(777))}}) {
    const auto found = texts(write(name, bytes), "");
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_TRUE(found[0] == text) << name;
  }
}

#ifdef TRIREME_LibLZMA
TEST_F(DocumentsOf, MembersOfXzMayHavePaddingBetweenThem) {
  EXPECT_THAT(texts(write("padded.xz", xz("one ") + std::string(8, '\0') + xz("two")), ""),
              ElementsAre("one two"));
}
#endif

TEST_F(DocumentsOf, AWindowOfZstdMayHaveMoreThan128MiB) {
  // A frame without checksum or size, with a window of 2^28 bytes and a last block of 3 raw bytes.
  const std::string bytes("\x28\xb5\x2f\xfd\x00\x90\x19\x00\x00one", 12);
  EXPECT_THAT(texts(write("long.zst", bytes), ""), ElementsAre("one"));
}

TEST_F(DocumentsOf, DamagedOrCutCompressionIsNoShorterText) {
  const std::string text = long_text().substr(0, 100'000);
  for (const auto& [name, bytes] : {std::pair{"t.gz", gzipped(text)},
                                    {"t.zst", zstd(text)},
                                    {"t.bz2", bzip2(text)},
                                    {"t.xz", xz(text)}}) {
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
  EXPECT_THAT(said("{\"id\": 1, \"body\": \"x\"}"),
              HasSubstr("bad.jsonl:3:1: error: the line has no key 'text', but 'body', 'id'"));
  EXPECT_THAT(said("{\"text\": 5}"), HasSubstr("has 'text' that is not text but number"));
  EXPECT_THAT(said("{\"text\": null}"), HasSubstr("has 'text' that is not text but null"));
  EXPECT_THAT(said("{\"text\": "), HasSubstr("bad.jsonl:3:10: error: the line ends within"));
  EXPECT_THAT(said("[1]"), HasSubstr("is not a JSON object but array; without --field"));
  EXPECT_THAT(said("{\"text\": \"a\", \"score\": NaN}"),
              HasSubstr("bad.jsonl:3:24: error: the line contains NaN, which is not JSON"));
  EXPECT_THAT(said("{\"text\": \"a\", \"n\": -Infinity}"), HasSubstr("contains Infinity"));
  EXPECT_THAT(said("{\"text\": \"a\xff\"}"), HasSubstr("the byte 0xff, which is not UTF-8"));
  EXPECT_THAT(
      said("{\"text\": \"\xc3\xa9t\xe9 \"}"),  // in ISO 8859-1 from the second accent on
      HasSubstr("bad.jsonl:3:14: error: the line contains the byte 0xe9, which is not UTF-8"));
  EXPECT_THAT(said("plain words"), HasSubstr("is not valid JSON from here on: \"plain words\""));
  // In a range that begins later, the number still counts from the beginning of the file.
  const std::string path = write("late.jsonl", good + good + "[]\n");
  EXPECT_THAT(user_error([&] { texts(path, "text", boundary(path, TextFormat("text"), 15)); }),
              HasSubstr("late.jsonl:3:1:"));
}

TEST_F(DocumentsOf, HalfSurrogatesAreReplaced) {
  const std::string path = write("a.jsonl", R"({"text": "bad \ud800 surrogate"})"
                                            "\n"
                                            R"({"text": "\ude00\ud83d\ude00\\ud800\uD83Dx"})"
                                            "\n");
  EXPECT_THAT(texts(path, "text"), ElementsAre("bad \xef\xbf\xbd surrogate",
                                               "\xef\xbf\xbd\xf0\x9f\x98\x80\\ud800\xef\xbf\xbdx"));
}

TEST_F(DocumentsOf, BadLinesAreSkippedAndCounted) {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += "{\"text\": \"" + std::to_string(i) + "\"}\n{\"text\": null}\n";
  TextFormat format("text");
  format.bad_lines = BadLines::skip;
  Documents documents(write("bad.jsonl", lines), format);
  std::string all;
  for (TextPiece piece; documents.next(piece);) all += piece.text;
  EXPECT_EQ(all, "01234567891011");
  EXPECT_EQ(documents.notes().bad_lines, 12);
  ASSERT_EQ(documents.notes().bad_places.size(), 10U);
  EXPECT_THAT(documents.notes().bad_places[9],
              HasSubstr("bad.jsonl:20:1: the line has 'text' that is not text but null"));
}

TEST_F(DocumentsOf, ANumberBeyondTheRangeMakesABadLine) {
  const std::string path =
      write("big.jsonl", "{\"text\": \"x\", \"n\": -1e999}\n{\"text\": \"y\"}\n");
  EXPECT_THAT(
      user_error([&] { texts(path, "text"); }),
      HasSubstr("big.jsonl:1:1: error: the line contains a number that a double cannot hold"));
  TextFormat format("text");
  format.bad_lines = BadLines::skip;
  Documents documents(path, format);
  TextPiece piece;
  ASSERT_TRUE(documents.next(piece));
  EXPECT_EQ(piece.text, "y");
  EXPECT_EQ(documents.notes().bad_lines, 1);
}

std::vector<std::string> separated(const std::string& path,
                                   const TextFormat& format,
                                   std::int64_t begin = 0,
                                   std::int64_t end = -1) {
  std::vector<std::string> all;
  Documents documents(path, format, begin, end);
  for (TextPiece piece; documents.next(piece);)
    if (piece.begins_document || all.empty())
      all.emplace_back(piece.text);
    else
      all.back() += piece.text;
  return all;
}

TextFormat separated_by(const std::string& separator) {
  TextFormat format;
  format.separator = separator;
  format.uncut = text::Spellings({separator});
  return format;
}

TEST_F(DocumentsOf, SeparatorsBeginDocuments) {
  const auto end = separated_by("<|endoftext|>");
  EXPECT_THAT(separated(write("a", "one\n<|endoftext|>\ntwo<|endoftext|><|endoftext|>three"), end),
              ElementsAre("one\n", "\ntwo", "three"));
  EXPECT_THAT(separated(write("b", "<|endoftext|>one<|endoftext|>"), end), ElementsAre("one"));
  EXPECT_THAT(separated(write("c", "<|endoftext|>"), end), ElementsAre());
  EXPECT_THAT(separated(write("d", "<|endoftext|"), end), ElementsAre("<|endoftext|"));
  const auto blank = separated_by("\n\n");
  EXPECT_THAT(separated(write("e", "\n\n\none\ntwo\n\n\nthree\n\n\n\nfour\n"), blank),
              ElementsAre("one\ntwo", "three", "four\n"));
}

// Many short documents, long ones, and separators around every possible start of a range.
TEST_F(DocumentsOf, SeparatedRangesJoinToTheWhole) {
  for (const std::string separator : {"<|endoftext|>", "\n\n", "---", "the"}) {
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      std::string one = "story " + std::to_string(i) + ".";
      for (int w = 0; w < i % 97; ++w) one += " a,word<b|";
      for (int w = 0; i == 1500 && w < 900'000; ++w) one += " long text";
      text +=
          one + separator + (i % 3 == 0 ? separator : "") + (i % 5 == 0 ? separator.substr(1) : "");
    }
    const auto format = separated_by(separator);
    const std::string path = write("s", text);
    const auto whole = separated(path, format);
    const bool full = separator == "<|endoftext|>" || separator == "the";
    EXPECT_TRUE(whole.size() >= 3000U || !full) << separator;
    const auto size = static_cast<std::int64_t>(text.size());
    for (const std::int64_t step : {70'001, 1'000'003}) {
      std::vector<std::string> joined;
      for (std::int64_t at = 0, begin = 0; begin < size;) {
        const std::int64_t end = boundary(path, format, at += step);
        if (end <= begin)
          continue;
        Documents documents(path, format, begin, end);
        for (TextPiece piece; documents.next(piece);) {
          if (piece.begins_document)
            joined.emplace_back();
          ASSERT_FALSE(joined.empty());
          joined.back() += piece.text;
          ASSERT_TRUE(std::string_view(text)
                          .substr(static_cast<std::size_t>(piece.at))
                          .starts_with(piece.text));
        }
        ASSERT_TRUE(begin == 0 || joined.empty() ||
                    front_of(path, format, begin).size() <= document_front);
        begin = end;
      }
      EXPECT_TRUE(joined == whole) << separator << step;
    }
  }
}

TEST_F(DocumentsOf, TheFrontOfADocumentIsFoundFromAnyOfItsBytes) {
  const auto end = separated_by("<|endoftext|>");
  const std::string path = write(
      "a", "one<|endoftext|>" + std::string(200'000, 'x') + "<|endoftext|>three<|endoftext|>");
  EXPECT_EQ(front_of(path, end, 2), "one");
  EXPECT_EQ(front_of(path, end, 16), std::string(65536, 'x'));
  EXPECT_EQ(front_of(path, end, 199'000), std::string(65536, 'x'));
  EXPECT_EQ(front_of(path, end, 200'031), "three");
}

TEST_F(DocumentsOf, SpelledOutSpecialTokensAreCounted) {
  TextFormat format;
  format.special = text::Spellings({"<|im_start|>", "<s>"});
  Documents documents(write("a", "x<s><|im_start|>y< s><|im_start"), format);
  for (TextPiece piece; documents.next(piece);) {
  }
  EXPECT_EQ(documents.notes().spelled, 2);
  EXPECT_EQ(documents.notes().spelled_as, "<s>");
}

// Ranges between boundaries give the same text and lines, wherever cuts are requested.
TEST_F(DocumentsOf, RangesJoinToTheWhole) {
  const std::string text = long_text().substr(0, 300'000);
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  const std::string plain = write("plain", text), json = write("json", lines);
  for (const std::int64_t step : {1'000, 4'099, 65'536, 299'999}) {
    std::string joined;
    for (std::int64_t at = 0, begin = 0; begin < 300'000;) {
      const std::int64_t end = boundary(plain, {}, at += step);
      if (end > begin)
        for (const auto& part : texts(plain, "", begin, end)) joined += part;
      begin = std::max(begin, end);
    }
    EXPECT_TRUE(joined == text) << step;
  }
  const auto size = static_cast<std::int64_t>(lines.size());
  std::vector<std::string> all;
  for (std::int64_t at = 0, begin = 0; begin < size;) {
    const std::int64_t end = boundary(json, TextFormat("text"), at += 10'007);
    for (const auto& line : texts(json, "text", begin, end)) all.push_back(line);
    begin = end;
  }
  EXPECT_EQ(all, texts(json, "text"));
}

TEST_F(DocumentsOf, ASearchForALineMayEndEarly) {
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += "{\"text\": \"" +
             std::string(i == 50 ? 300'000 : static_cast<std::size_t>(7 * i), 'x') + "\"}\n";
  const std::string path = write("json", lines);
  const auto size = static_cast<std::int64_t>(lines.size());
  for (std::int64_t at = 0; at < size; at += 1'009)
    for (const std::int64_t length : {1, 2, 600, 20'000, 400'000})
      EXPECT_EQ(std::min(boundary(path, TextFormat("text"), at, at + length), at + length),
                std::min(boundary(path, TextFormat("text"), at), at + length))
          << at << " " << length;
}

class Exhausted final : public text::Tokenizer {
 public:
  std::int64_t vocabulary() const override { return 1; }
  std::optional<text::Token> end_of_text() const override { return std::nullopt; }
  std::string kind() const override { return "exhausted"; }
  std::uint64_t hash() const override { return 0; }
  std::string serialized() const override { return ""; }
  void encode(std::string_view, std::vector<text::Token>&) const override {
    throw std::bad_alloc();
  }
  void decode(std::span<const text::Token>, std::string&) const override {}
  std::int32_t bytes_of(text::Token) const override { return 0; }
};

TEST_F(DocumentsOf, EncodingNamesTheFileForWhichMemoryRanOut) {
  Documents documents(write("dna.txt", "ACGT"), {});
  try {
    encode_documents(documents, "dna.txt", Exhausted(), [](const auto&, const auto&) {});
    FAIL() << "memory did not run out";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("encode dna.txt failed: out of memory"));
  }
}

}  // namespace
}  // namespace trireme::tokens
