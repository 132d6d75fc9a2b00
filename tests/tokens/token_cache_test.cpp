// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_cache.hpp"

#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "base/hash.hpp"
#include "files/output_file.hpp"

#include "tokens/scratch.hpp"

namespace trireme::tokens {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string text_of(const TokenStream& stream, std::int64_t begin, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  stream.read(begin, tokens);
  return {tokens.begin(), tokens.end()};
}
std::string text_of(const TokenStream& stream) {
  return text_of(stream, 0, static_cast<std::size_t>(stream.size()));
}

class TokenCache : public Scratch {
 protected:
  CacheHeader build(const std::vector<std::string>& entries) const {
    return build_cache(path(), find_text(entries), entries);
  }
  [[nodiscard]] std::string path() const { return at("tokens/text.tokens"); }
  [[nodiscard]] std::string problem() const {
    CacheHeader header;
    return cache_problem(path(), header);
  }
  /// The cache becomes `whole` with some of its bytes replaced.
  void damage(std::string whole, std::size_t offset, std::string_view bytes) const {
    write("tokens/text.tokens", whole.replace(offset, bytes.size(), bytes));
  }
};

TEST_F(TokenCache, DraftsOfKilledProcessesGoAndLiveOnesStay) {
  write("d/1", "one");
  fs::create_directories(at("tokens"));
  const files::StagedFile live(path());
  for (const char* name :
       {"tokens/text.tokens.a-b.c-4711.part", "tokens/text.tokens.host-4711.part"})
    write(name, "half");
  for (const char* name :
       {"tokens/text.tokens.part", "tokens/text.tokens.host-.part",
        "tokens/text.tokens2.host-4711.part", "tokens/text.tokens.host-1.part.old"})
    write(name, "mine");
  files::remove_abandoned(at("tokens"), {"text.tokens"});
  EXPECT_FALSE(fs::exists(at("tokens/text.tokens.host-4711.part")));
  EXPECT_FALSE(fs::exists(at("tokens/text.tokens.a-b.c-4711.part")));
  EXPECT_TRUE(fs::exists(files::StagedFile::place(path())));
  EXPECT_EQ(std::distance(fs::directory_iterator(at("tokens")), {}), 5);
}

TEST_F(TokenCache, FilesAreJoinedByNewlines) {
  write("d/1", "one");
  write("d/2", "two\n");
  write("d/3", "\xff!");
  const auto header = build({at("d")});
  EXPECT_EQ(header.files, 3U);
  EXPECT_EQ(header.tokens, 10U);
  const auto stream = open_cache(path());
  EXPECT_EQ(text_of(*stream), "one\ntwo\n\xff!");
  EXPECT_EQ(stream->vocabulary(), 256);
  EXPECT_EQ(stream->content_hash(), header.content_hash);
  EXPECT_EQ(text_of(*stream, 2, 3), "e\nt");
  std::vector<std::int32_t> last(1);
  stream->read(8, last);
  EXPECT_EQ(last[0], 255);  // bytes are not signed
}

TEST_F(TokenCache, TheFileIsAsDocumented) {
  build({write("text", "abcdef")});
  const std::string file = content(path());
  ASSERT_EQ(file.size(), 128U + 6U + 8U);
  EXPECT_EQ(file.substr(0, 8), "triremeT");
  EXPECT_EQ(file.substr(8, 16),
            std::string("\3\0\0\0\x80\0\0\0\1\0\0\0\0\1\0\0", 16));  // version, header, width, 256
  EXPECT_EQ(file.substr(24, 8), std::string("\6\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.substr(128, 6), "abcdef");
  const std::uint64_t hash = hash_bytes("abcdef");
  EXPECT_EQ(file.substr(134), std::string(reinterpret_cast<const char*>(&hash), 8));
  // Nothing but the cache is left beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(at("tokens")), fs::directory_iterator()), 1);
}

TEST_F(TokenCache, BinaryFilesOfDirectoriesAreSkippedAndAStrayNulIsText) {
  const std::string odd = std::string(300, 'x') + std::string(1, '\0');
  write("d/1", "one");
  write("d/2", std::string(100, '\0'));
  write("d/3", odd);
  const auto header = build({at("d")});
  EXPECT_EQ(header.binary_files, 1U);
  EXPECT_EQ(header.files, 2U);
  EXPECT_EQ(text_of(*open_cache(path())), "one\n" + odd);

  fs::remove(at("d/2"));
  EXPECT_EQ(header.content_hash, build({at("d")}).content_hash);
}

TEST_F(TokenCache, AFileByNameIsTakenAsItIs) {
  const auto header = build({write("odd", std::string("a\0b", 3))});
  EXPECT_EQ(header.tokens, 3U);
  EXPECT_EQ(text_of(*open_cache(path())), std::string("a\0b", 3));
}

TEST_F(TokenCache, LargeFilesKeepTheirBytes) {
  std::string text(5'000'001, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(1 + i * i % 255);
  build({write("large", text)});
  EXPECT_EQ(text_of(*open_cache(path())), text);
}

TEST_F(TokenCache, AnEntryWithoutTextIsAFindingAndLeavesNothing) {
  write("good", "text");
  write("d/binary", std::string("\0", 1));
  const std::vector<std::string> entries{at("good"), at("d")};
  EXPECT_THAT(user_error([&] { build(entries); }),
              HasSubstr("'" + at("d") + "' contains no text: 1 files"));
  EXPECT_TRUE(fs::is_empty(at("tokens")));
}

TEST_F(TokenCache, ARefusedRebuildKeepsTheOldCache) {
  build({write("text", "abc")});
  const std::string before = content(path());
  write("d/binary", std::string("\0", 1));
  user_error([&] { build({at("d")}); });
  EXPECT_EQ(content(path()), before);
}

TEST_F(TokenCache, StreamsOutliveARebuild) {
  build({write("text", "abc")});
  const auto stream = open_cache(path());
  build({write("other", "a longer text")});
  EXPECT_EQ(text_of(*stream), "abc");
  EXPECT_EQ(text_of(*open_cache(path())), "a longer text");
}

TEST_F(TokenCache, TruncatedAnywhere) {
  build({write("text", "abcdef")});
  const std::string whole = content(path());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write("tokens/text.tokens", whole.substr(0, size));
    EXPECT_THAT(problem(), HasSubstr("is truncated")) << size;
    const std::string text = user_error([&] { open_cache(path()); });
    EXPECT_THAT(text, HasSubstr(path() + ": error: the token cache is truncated")) << size;
    EXPECT_THAT(text, HasSubstr("remove it")) << size;
  }
  write("tokens/text.tokens", whole + "x");
  EXPECT_THAT(problem(), HasSubstr("too long: 143 bytes"));
}

TEST_F(TokenCache, AnotherVersionForeignOrDamaged) {
  build({write("text", "abcdef")});
  const std::string whole = content(path());
  damage(whole, 8, "\1");
  EXPECT_EQ(problem(), "has format version 1, this program reads version 3");
  damage(whole, 0, "x");
  EXPECT_THAT(user_error([&] { open_cache(path()); }),
              HasSubstr("is not a token cache of trireme"));
  EXPECT_THAT(user_error([&] { static_cast<void>(problem()); }),
              HasSubstr("is not a token cache of trireme"));
  for (std::size_t offset = 12; offset < 128; ++offset) {
    // Another byte than the one that is there, whatever the fingerprint of this file's path and
    // times has put there.
    damage(whole, offset, std::string(1, static_cast<char>(whole[offset] ^ 0x5a)));
    EXPECT_EQ(problem(), "has a damaged header") << offset;
  }
}

TEST_F(TokenCache, EveryFlippedBitAfterTheHeaderIsFound) {
  // Three blocks, the last one short.
  std::string text(static_cast<std::size_t>(2 * block_bytes + 1000), ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(1 + i * 7919 % 255);
  build({write("text", text)});
  const std::string whole = content(path());
  EXPECT_EQ(problem(), "");
  for (std::size_t offset = 128; offset < whole.size(); offset += 1009) {
    damage(whole, offset, std::string(1, static_cast<char>(whole[offset] ^ 1)));
    EXPECT_THAT(problem(), HasSubstr("is damaged")) << offset;
  }
  for (std::size_t offset = whole.size() - 24; offset < whole.size(); ++offset) {
    damage(whole, offset, std::string(1, static_cast<char>(whole[offset] ^ 0x80)));
    EXPECT_THAT(problem(), HasSubstr("is damaged: its hashes")) << offset;
  }
}

TEST_F(TokenCache, AStreamChecksABlockWhenItIsFirstRead) {
  build({write("text", std::string(static_cast<std::size_t>(2 * block_bytes), 'a'))});
  const auto offset = 128 + static_cast<std::size_t>(block_bytes) + 17;
  damage(content(path()), offset, "b");
  const auto stream = open_cache(path());
  EXPECT_EQ(text_of(*stream, 0, 100), std::string(100, 'a'));
  std::vector<std::int32_t> tokens(10);
  const std::string text = storage_error([&] { stream->read(block_bytes - 5, tokens); });
  EXPECT_THAT(text, HasSubstr(path()));
  EXPECT_THAT(text, HasSubstr("bytes 65664 to 131200 do not match their hash"));
}

TEST_F(TokenCache, AFileThatIsCutWhileItIsReadIsAnErrorWithItsName) {
  build({write("text", "abcdef")});
  const auto stream = open_cache(path());
  fs::resize_file(path(), 131);
  std::vector<std::int32_t> tokens(6);
  const std::string text = storage_error([&] { stream->read(0, tokens); });
  EXPECT_THAT(text, HasSubstr("read " + path()));
  EXPECT_THAT(text, HasSubstr("it ends at byte 131 and had 142"));
}

TEST_F(TokenCache, TheContentHashFollowsTheTokensAlone) {
  write("d/1", "one");
  const auto alone = build({at("d")});
  write("e/1", "o");
  write("e/2", "ne");
  EXPECT_NE(build({at("e")}).content_hash, alone.content_hash);  // a newline between them
  EXPECT_EQ(build({write("f", "one")}).content_hash, alone.content_hash);
  EXPECT_NE(build({write("f", "onf")}).content_hash, alone.content_hash);
}

TEST_F(TokenCache, ReadsOutsideAreRefused) {
  build({write("text", "abcdef")});
  const auto stream = open_cache(path());
  std::vector<std::int32_t> tokens(4);
  stream->read(2, tokens);
  EXPECT_THROW(stream->read(3, tokens), ContractError);
  EXPECT_THROW(stream->read(-1, tokens), ContractError);
}

TEST_F(TokenCache, StorageErrorsNameTheStatement) {
  const std::string file = write("file", "x");
  const std::vector<std::string> entries{file};
  try {
    build_cache(file + "/text.tokens", find_text(entries), entries);
    FAIL() << "no StorageError";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("create directory " + file));
  }
  EXPECT_THROW(open_cache(at("missing.tokens")), StorageError);
}

TEST_F(TokenCache, AFullDiskIsAStorageError) {
  if (!fs::exists("/dev/full"))
    GTEST_SKIP() << "no /dev/full here";
  // A link sends the draft to a disk that is always full.
  fs::create_directories(at("tokens"));
  fs::create_symlink("/dev/full", files::StagedFile::place(path()));
  try {
    build({write("text", "abc")});
    ADD_FAILURE() << "no StorageError";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  }
  EXPECT_TRUE(fs::is_empty(at("tokens")));
}

}  // namespace
}  // namespace trireme::tokens
