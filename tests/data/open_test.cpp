// SPDX-License-Identifier: Apache-2.0
#include "data/open.hpp"

#include <cstring>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>

#include "data/dataset.hpp"
#include "data/scratch.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Open : public Scratch {
 protected:
  data::Setup text(std::vector<std::string> entries) const {
    data::Setup setup;
    setup.config.train.text = std::move(entries);
    setup.default_cache_directory = at("run/tokens");
    setup.vocabulary = 256;
    return setup;
  }
  /// Prepares with a log of its own and returns what it said.
  std::string prepare(const data::Setup& setup) const {
    fs::remove(at("log"));
    Log log(true, "test");
    log.also_to_file(at("log"));
    prepare_tokens(setup, log);
    return content(at("log"));
  }
  static std::string first(const TokenStream& stream, std::size_t count) {
    std::vector<std::int32_t> tokens(count);
    stream.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }
};

TEST_F(Open, BuildsReusesAndRebuilds) {
  const data::Setup setup = text({write("text", "first text")});
  EXPECT_THAT(prepare(setup), HasSubstr("data: cached 10 tokens from 1 text files"));
  const auto built = fs::last_write_time(cache_path(setup));
  EXPECT_EQ(first(*open_tokens(setup), 5), "first");

  EXPECT_THAT(prepare(setup), HasSubstr("data: 10 tokens from the cache"));
  EXPECT_EQ(fs::last_write_time(cache_path(setup)), built);

  write("text", "other words");
  EXPECT_THAT(prepare(setup), HasSubstr("the text has changed, cached again 11 tokens"));
  EXPECT_EQ(first(*open_tokens(setup), 5), "other");
}

TEST_F(Open, ADamagedCacheIsNeitherUsedNorReplaced) {
  const data::Setup setup = text({write("text", "first text")});
  prepare(setup);
  fs::resize_file(cache_path(setup), 130);
  const std::string line = user_error([&] { prepare(setup); });
  EXPECT_THAT(line, HasSubstr("truncated: 130 bytes where its header says 138"));
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  EXPECT_EQ(fs::file_size(cache_path(setup)), 130U);
  user_error([&] { open_tokens(setup); });
}

TEST_F(Open, OtherEntriesHaveAnotherCache) {
  const data::Setup a = text({write("a", "aaa")}), b = text({write("b", "bbb")});
  EXPECT_NE(cache_path(a), cache_path(b));
  EXPECT_EQ(cache_path(a), cache_path(text({at("a")})));
  data::Setup elsewhere = a;
  elsewhere.config.cache.value = at("cache");
  EXPECT_THAT(cache_path(elsewhere), HasSubstr(at("cache")));
  prepare(elsewhere);
  EXPECT_FALSE(fs::exists(at("run")));
}

TEST_F(Open, SaysWhatItLeftOut) {
  write("d/good", "text");
  write("d/binary", std::string("\0", 1));
  fs::create_symlink("nowhere", at("d/dangling"));
  fs::create_symlink("good", at("d/same"));
  const std::string said = prepare(text({at("d")}));
  EXPECT_THAT(said, HasSubstr("1 binary files skipped"));
  EXPECT_THAT(said, HasSubstr("1 files or directories met again"));
  EXPECT_THAT(said, HasSubstr("1 dangling links or special files left out"));
}

TEST_F(Open, ExactlyOneSource) {
  data::Setup setup = text({});
  EXPECT_THAT(user_error([&] { prepare(setup); }),
              HasSubstr("data.train: give one of text, tokens and synthetic, not 0"));
  setup = text({at("x")});
  setup.config.train.synthetic = 5;
  EXPECT_THAT(user_error([&] { open_tokens(setup); }), HasSubstr("not 2"));
}

TEST_F(Open, ShardsAreCheckedAgainstTheVocabulary) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  bytes += std::string("\x50\xc4\x00\x00\x39\x30", 6);
  data::Setup setup = text({});
  setup.config.train.tokens = {at("*.bin")};
  write("a.bin", bytes);
  EXPECT_THAT(user_error([&] { prepare(setup); }), HasSubstr("token 0 is 50256"));
  setup.vocabulary = 50304;
  prepare(setup);
  EXPECT_EQ(open_tokens(setup)->size(), 3);
}

TEST_F(Open, Synthetic) {
  data::Setup setup = text({});
  setup.config.train.synthetic = 1000;
  setup.seed = 5;
  prepare(setup);
  const auto stream = open_tokens(setup);
  EXPECT_EQ(stream->size(), 1000);
  EXPECT_EQ(stream->vocabulary(), 256);
}

// The text of the quick start: the headers that the compiler brought.
TEST_F(Open, TheHeadersOfTheCompiler) {
  if (!fs::exists("/usr/include/c++"))
    GTEST_SKIP() << "no /usr/include/c++ here";
  const data::Setup setup = text({"/usr/include/c++"});
  prepare(setup);
  const std::shared_ptr<const TokenStream> stream = open_tokens(setup);
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
}  // namespace trireme::data
