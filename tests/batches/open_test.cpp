// SPDX-License-Identifier: Apache-2.0
#include "batches/open.hpp"

#include <cstring>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "batches/dataset.hpp"
#include "text/vocabularies.hpp"
#include "tokens/scratch.hpp"

namespace trireme::batches {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Open : public tokens::Scratch {
 protected:
  batches::Setup text(std::vector<std::string> entries) const {
    batches::Setup setup;
    setup.config.train.text = std::move(entries);
    setup.default_cache_directory = at("run/tokens");
    setup.vocabulary = 256;
    return setup;
  }
  /// Prepares with a log of its own and returns what it said.
  std::string prepare(const batches::Setup& setup) const {
    fs::remove(at("log"));
    Log log(true, "test");
    log.also_to_file(at("log"));
    prepare_sources(setup, log);
    return content(at("log"));
  }
  static std::shared_ptr<const tokens::TokenStream> open(const batches::Setup& setup) {
    Log log(false, "test");
    return open_sources(setup, prepare_sources(setup, log)).train.front().tokens;
  }
  static std::string cache_path(const batches::Setup& setup) {
    return batches::cache_path(setup, setup.config.train);
  }
  static std::string first(const tokens::TokenStream& stream, std::size_t count) {
    std::vector<std::int32_t> tokens(count);
    stream.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }
};

TEST_F(Open, BuildsReusesAndRebuilds) {
  const batches::Setup setup = text({write("text", "first text")});
  EXPECT_THAT(prepare(setup), HasSubstr("data: cached 10 tokens from 1 text files"));
  const auto built = fs::last_write_time(cache_path(setup));
  EXPECT_EQ(first(*open(setup), 5), "first");

  EXPECT_THAT(prepare(setup), HasSubstr("data: 10 tokens from the cache"));
  EXPECT_EQ(fs::last_write_time(cache_path(setup)), built);

  write("text", "other words");
  EXPECT_THAT(prepare(setup), HasSubstr("the text has changed; rebuilding the cache 11 tokens"));
  EXPECT_EQ(first(*open(setup), 5), "other");
}

TEST_F(Open, ADamagedCacheIsBuiltAgainWithALine) {
  const batches::Setup setup = text({write("text", "first text")});
  prepare(setup);
  const std::string whole = content(cache_path(setup));
  fs::resize_file(cache_path(setup), 130);
  std::string said = prepare(setup);
  EXPECT_THAT(said, HasSubstr(cache_path(setup) + ": the token cache is truncated: 130 bytes where "
                                                  "its header says 146; rebuilding it"));
  EXPECT_THAT(said, HasSubstr("data: cached 10 tokens"));
  EXPECT_EQ(content(cache_path(setup)), whole);

  std::string flipped = whole;
  flipped[130] = static_cast<char>(flipped[130] ^ 1);
  std::ofstream(cache_path(setup), std::ios::binary) << flipped;
  said = prepare(setup);
  EXPECT_THAT(said, HasSubstr("is damaged: block 1 of 1 does not match its hash"));
  EXPECT_EQ(first(*open(setup), 5), "first");
}

TEST_F(Open, AFileThatIsNoCacheIsNotReplaced) {
  const batches::Setup setup = text({write("text", "first text")});
  fs::create_directories(at("run/tokens"));
  std::ofstream(cache_path(setup)) << "somebody's only copy";
  EXPECT_THAT(user_error([&] { prepare(setup); }), HasSubstr("is not a token cache of trireme"));
  EXPECT_EQ(content(cache_path(setup)), "somebody's only copy");
}

TEST_F(Open, AFifoInTheCachesPlaceIsRefusedAtOnce) {
  const batches::Setup setup = text({write("text", "first text")});
  fs::create_directories(at("run/tokens"));
  ASSERT_EQ(::mkfifo(cache_path(setup).c_str(), 0600), 0);
  const std::string text = storage_error([&] { prepare(setup); });
  EXPECT_THAT(text, HasSubstr(cache_path(setup)));
  EXPECT_THAT(text, HasSubstr("a FIFO is in the place of a file"));
}

TEST_F(Open, OtherEntriesHaveAnotherCache) {
  const batches::Setup a = text({write("a", "aaa")}), b = text({write("b", "bbb")});
  EXPECT_NE(cache_path(a), cache_path(b));
  EXPECT_EQ(cache_path(a), cache_path(text({at("a")})));
  batches::Setup elsewhere = a;
  elsewhere.config.cache.value = at("cache");
  EXPECT_THAT(cache_path(elsewhere), HasSubstr(at("cache")));
  prepare(elsewhere);
  EXPECT_FALSE(fs::exists(at("run")));
}

TEST_F(Open, NamesWhatItLeftOut) {
  write("d/good", "text");
  write("d/binary", std::string("\0", 1));
  fs::create_symlink("nowhere", at("d/dangling"));
  fs::create_symlink("good", at("d/same"));
  const std::string said = prepare(text({at("d")}));
  EXPECT_THAT(said, HasSubstr("data.train.text: skipped 1 binary file"));
  EXPECT_THAT(said, HasSubstr("skipped 1 file or directory that was found before"));
  EXPECT_THAT(said, HasSubstr("skipped 1 dangling link or special file"));
}

TEST_F(Open, ExactlyOneSource) {
  batches::Setup setup = text({});
  EXPECT_THAT(user_error([&] { prepare(setup); }),
              HasSubstr("data.train: give one of text, tokens, synthetic and mixture, not 0"));
  setup = text({at("x")});
  setup.config.train.synthetic = 5;
  EXPECT_THAT(user_error([&] { open_sources(setup, {}); }), HasSubstr("not 2"));
}

TEST_F(Open, ShardsAreCheckedAgainstTheVocabulary) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  bytes += std::string("\x50\xc4\x00\x00\x39\x30", 6);
  batches::Setup setup = text({});
  setup.config.train.tokens = {at("*.bin")};
  write("a.bin", bytes);
  EXPECT_THAT(user_error([&] { prepare(setup); }), HasSubstr("token 0 is 50256"));
  setup.vocabulary = 50304;
  prepare(setup);
  EXPECT_EQ(open(setup)->size(), 3);
}

TEST_F(Open, ADocumentMaskNeedsDocumentsInTheTokens) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  batches::Setup setup = text({});
  setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
  setup.config.tokenizer = "small";
  setup.config.train.tokens = {write("a.bin", bytes + std::string("\1\0\2\0\3\0", 6))};
  setup.vocabulary = 300;
  prepare(setup);
  setup.document_mask = true;
  EXPECT_THAT(
      user_error([&] { prepare(setup); }),
      HasSubstr("data.train: model.document_mask finds no documents: the end-of-text token"));
  const auto end = static_cast<char>(*setup.tokenizer->end_of_text() - 256);
  write("a.bin", bytes + std::string("\1\0", 2) + end + std::string("\1\3\0", 3));
  prepare(setup);
}

TEST_F(Open, WarnsOfIdsThatSixteenBitsDoNotHold) {
  batches::Setup setup = text({});
  auto vocabulary = text::vocabulary_of({{"a", "b"}});
  vocabulary.tokens.resize(70'000);
  setup.tokenizer = text::make_tokenizer(vocabulary, "large");
  setup.config.tokenizer = "large";
  setup.vocabulary = 70'000;
  setup.config.train.tokens = {write("raw", std::string("\1\0\2\0", 4))};
  setup.config.train.format = tokens::TokenFormat::uint16;
  EXPECT_THAT(prepare(setup),
              HasSubstr("data.train.format is uint16, which cannot hold the 70000"));
}

TEST_F(Open, DocumentsForValidationAreChosenByAHash) {
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += "document " + std::to_string(i) + "<|endoftext|>";
  batches::Setup setup = text({write("stories", lines)});
  setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
  setup.config.tokenizer = "small";
  setup.vocabulary = 300;
  const std::string said = prepare(setup);
  EXPECT_THAT(said, HasSubstr("found 400 separators \"<|endoftext|>\" between 400 documents"));
  EXPECT_THAT(said, HasSubstr("whole documents chosen by a hash, are validation data"));
  Log log(false, "test");
  const auto sources = open_sources(setup, prepare_sources(setup, log));
  const Stream& stream = sources.train.front();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.tokens->size()));
  stream.tokens->read(0, tokens);
  ASSERT_GT(stream.validation_tokens, 0);
  EXPECT_LT(stream.validation_tokens, stream.tokens->size() / 5);
  const auto border = stream.tokens->size() - stream.validation_tokens;
  EXPECT_EQ(tokens[static_cast<std::size_t>(border)], setup.tokenizer->end_of_text());
  std::string text;
  setup.tokenizer->decode(tokens, text);
  for (int i = 0; i < 400; ++i)  // every one once, whole
    EXPECT_NE(text.find("document " + std::to_string(i)), std::string::npos) << i;
  const auto parts = split({stream}, std::nullopt,
                           {.context = 8,
                            .sequences = 2,
                            .vocabulary = 300,
                            .validation_fraction = setup.config.validation_fraction});
  EXPECT_EQ(parts.validation->num_tokens(), stream.validation_tokens);

  setup.config.validation.by = ValidationBy::tail;
  const auto tail = open_sources(setup, prepare_sources(setup, log));
  EXPECT_EQ(tail.train.front().validation_tokens, -1);
  EXPECT_EQ(tail.train.front().tokens->size(), stream.tokens->size());

  // Too few documents: the tail without being asked, an error when documents were asked for.
  setup.config.train.text = {write("few", "one<|endoftext|>two")};
  setup.config.validation.by = ValidationBy::automatic;
  EXPECT_EQ(open_sources(setup, prepare_sources(setup, log)).train.front().validation_tokens, -1);
  setup.config.validation.by = ValidationBy::documents;
  setup.config.validation_fraction = 1e-9;
  EXPECT_THAT(user_error([&] { prepare(setup); }), HasSubstr("none of the 2 documents was chosen"));
}

TEST_F(Open, WarnsOfATailOfOtherFiles) {
  write("t/a.txt", std::string(1000, 'a'));
  const std::string other = write("t/z.txt", std::string(300, '7'));
  batches::Setup setup = text({at("t")});
  setup.config.validation_fraction = 0.25;
  EXPECT_THAT(prepare(setup), HasSubstr("most of it from " + other + " on"));
  setup.config.validation_fraction = 0.05;
  write("t/z.txt", std::string(301, '7'));
  EXPECT_THAT(prepare(setup), testing::Not(HasSubstr("most of it")));
}

TEST_F(Open, Synthetic) {
  batches::Setup setup = text({});
  setup.config.train.synthetic = 1000;
  setup.seed = 5;
  prepare(setup);
  const auto stream = open(setup);
  EXPECT_EQ(stream->size(), 1000);
  EXPECT_EQ(stream->vocabulary(), 256);
}

// The text of the quick start: the headers that the compiler brought.
TEST_F(Open, TheHeadersOfTheCompiler) {
  if (!fs::exists("/usr/include/c++"))
    GTEST_SKIP() << "no /usr/include/c++ here";
  const batches::Setup setup = text({"/usr/include/c++"});
  prepare(setup);
  const std::shared_ptr<const tokens::TokenStream> stream = open(setup);
  EXPECT_GT(stream->size(), 5'000'000);
  const auto parts = split(
      stream, {.context = 64, .sequences = 16, .vocabulary = 256, .validation_fraction = 0.1});
  std::vector<std::int32_t> tokens(64), targets(64);
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    parts.train.fill(sample, tokens, targets);
    EXPECT_EQ(std::vector(tokens.begin() + 1, tokens.end()),
              std::vector(targets.begin(), targets.end() - 1));
  }
}

}  // namespace
}  // namespace trireme::batches
