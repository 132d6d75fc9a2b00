// SPDX-License-Identifier: Apache-2.0
#include "corpus/count_texts.hpp"

#include <iterator>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>

#include "tokens/compressed.hpp"
#include "tokens/scratch.hpp"

#include "support/child_process.hpp"

namespace trireme::corpus {
namespace {

using testing::HasSubstr;
using Counts = std::map<std::string, std::uint64_t>;

std::string words_and_more(int count) {
  std::string text;
  std::mt19937 draw(9);
  const char* words[] = {"the",  " cat", "'s", "\u00e9t\u00e9", " \u4f60\u597d", "\n\n  ", "12345",
                         "\xff", "  ",   "!?"};
  for (int i = 0; i < count; ++i) text += words[draw() % std::size(words)];
  return text;
}

class CountTexts : public tokens::Scratch {
 protected:
  Counts counted(const std::vector<std::string>& entries,
                 const std::string& field = "",
                 text::Pattern pattern = text::Pattern::gpt2,
                 std::int64_t block_bytes = 1 << 20,
                 int threads = 2) {
    return count(
        tokens::find_text(entries, "--text").files, field,
        {.pattern = pattern, .threads = threads, .block_bytes = block_bytes, .progress = {}});
  }
  Counts count(const std::vector<tokens::TextFile>& files,
               const std::string& field = "",
               const CountRequest& request = {}) {
    const auto alone = comm::make_self_world();
    corpus_ = count_texts(files, tokens::TextFormat(field), request, *alone);
    Counts found;
    for (const CountedPiece& piece : corpus_.kept.pieces()) found[piece.bytes] = piece.count;
    return found;
  }

  CountedCorpus corpus_{.kept = KeptPieces(0)};
};

Counts pieces_of(text::Pattern pattern, const std::vector<std::string>& texts) {
  Counts expected;
  for (const std::string& text : texts)
    text::split(pattern, text, [&](std::string_view piece) { ++expected[std::string(piece)]; });
  return expected;
}

TEST_F(CountTexts, CountsDoNotDependOnBlocksAndThreads) {
  const std::string text = words_and_more(5000) + std::string(3000, 'z') + "\n ";
  const std::string path = write("a.txt", text);
  for (const auto pattern : {text::Pattern::gpt2, text::Pattern::cl100k, text::Pattern::llama3})
    for (const std::int64_t block : {7, 64, 1000, 1 << 20})
      for (const int threads : {1, 3}) {
        EXPECT_EQ(counted({path}, "", pattern, block, threads), pieces_of(pattern, {text}))
            << "blocks of " << block << ", " << threads << " threads";
        EXPECT_EQ(corpus_.bytes, std::ssize(text));
      }
}

TEST_F(CountTexts, NamesTheLimitWhereAThreadIsRefused) {
  const auto files = tokens::find_text({write("a.txt", "one two")}, "--text").files;
  EXPECT_THAT(test::without_threads([&] { count(files); }),
              HasSubstr("'count-texts' failed: Resource temporarily unavailable (ulimit -u"));
}

TEST_F(CountTexts, DirectoriesGlobsAndCompressionCountAsThePlainText) {
  const std::vector<std::string> texts = {words_and_more(700), words_and_more(900) + "x "};
  write("plain/a.txt", texts[0]);
  write("plain/b.txt", texts[1]);
  write("packed/a.txt.gz", tokens::gzipped(texts[0]));
  write("packed/b.zst", tokens::zstd(texts[1]));
  const Counts expected = pieces_of(text::Pattern::gpt2, texts);
  for (const std::string& entry : {at("plain"), at("packed"), at("p*ed"), at("plain/*.txt")}) {
    EXPECT_EQ(counted({entry}), expected) << entry;
    EXPECT_EQ(corpus_.bytes, std::ssize(texts[0]) + std::ssize(texts[1]));
  }
}

TEST_F(CountTexts, JsonLinesAreATextEach) {
  // With cl100k, white space at the end of a text is one piece, which does not cross two texts.
  const std::string lines =
      "{\"text\": \"one two \\n \"}\n\n{\"id\": 7, \"text\": \" three\"}\n{\"text\": \"\"}\n";
  const Counts expected = pieces_of(text::Pattern::cl100k, {"one two \n ", " three"});
  write("a.jsonl", lines);
  write("a.jsonl.gz", tokens::gzipped(lines));
  for (const std::int64_t block : {1, 20, 1000}) {
    EXPECT_EQ(counted({at("a.jsonl")}, "text", text::Pattern::cl100k, block), expected) << block;
    EXPECT_EQ(counted({at("a.jsonl.gz")}, "text", text::Pattern::cl100k, block), expected);
  }
  EXPECT_THAT(user_error([&] { counted({at("a.jsonl")}, "body"); }),
              HasSubstr("a.jsonl:1:1: error: the line has no key 'body'"));
}

TEST_F(CountTexts, BinaryFilesThatWereNotNamedAreSkipped) {
  const std::string binary = "text" + std::string(100, '\0') + words_and_more(200);
  write("d/a.bin", binary);
  write("d/b.txt", "words");
  EXPECT_EQ(counted({at("d")}, "", text::Pattern::gpt2, 50), (Counts{{"words", 1}}));
  EXPECT_EQ(counted({at("d/a.bin")}), pieces_of(text::Pattern::gpt2, {binary}));
}

TEST_F(CountTexts, WhatIsDamagedOrChangedIsNoShorterText) {
  const std::string packed = tokens::gzipped(words_and_more(500));
  const std::string path = write("cut.gz", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(user_error([&] { counted({path}); }), HasSubstr("the gzip data are cut short"));
  const std::string plain = write("a.txt", "one two");
  const auto files = tokens::find_text({plain}, "--text").files;
  write("a.txt", "one");
  EXPECT_THAT(storage_error([&] { count(files); }),
              HasSubstr("it has 3 bytes and had 7 when it was listed"));
  EXPECT_THROW(count({{.path = "/nonexistent/file", .size = 5}}), StorageError);
}

}  // namespace
}  // namespace trireme::corpus
