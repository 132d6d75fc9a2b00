// SPDX-License-Identifier: Apache-2.0
#include "batches/open.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/hash.hpp"

#include "batches/dataset.hpp"
#include "text/vocabularies.hpp"
#include "tokens/documents.hpp"
#include "tokens/manifest.hpp"
#include "tokens/scratch.hpp"
#include "tokens/token_index.hpp"

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
  /// Opens with a separate log and returns its text.
  std::string say(const batches::Setup& setup) const {
    fs::remove(at("log"));
    Log log(true, "test");
    log.also_to_file(at("log"));
    open_sources(setup, *world_, log);
    return content(at("log"));
  }
  [[nodiscard]] Stream open(const batches::Setup& setup) const {
    Log log(false, "test");
    return open_sources(setup, *world_, log).train.front();
  }
  /// The files of the cache, sorted.
  [[nodiscard]] std::vector<std::string> cache(const char* directory = "run/tokens") const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(at(directory)))
      paths.push_back(entry.path().string());
    std::ranges::sort(paths);
    return paths;
  }
  [[nodiscard]] std::string text_of(const batches::Setup& setup) const {
    const auto stream = open(setup).tokens;
    return first(*stream, static_cast<std::size_t>(stream->size()));
  }
  static std::string first(const tokens::TokenStream& stream, std::size_t count) {
    std::vector<std::int32_t> tokens(count);
    stream.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }

  std::unique_ptr<comm::World> world_ = comm::make_self_world();
};

TEST_F(Open, EncodesTextOnce) {
  const batches::Setup setup = text({write("text", "first text")});
  EXPECT_THAT(say(setup), HasSubstr("data: encoded 10 tokens into " + at("run/tokens/text-")));
  const auto files = cache();
  ASSERT_EQ(files.size(), 3U) << "a shard, its index, the manifest";
  const auto built = fs::last_write_time(files[1]);
  EXPECT_EQ(text_of(setup), "first text");

  EXPECT_THAT(say(setup), HasSubstr("data: found 10 tokens in " + at("run/tokens/text-")));
  EXPECT_EQ(fs::last_write_time(files[1]), built);

  write("text", "other words");
  EXPECT_THAT(say(setup), HasSubstr("data: encoded 11 tokens"));
  EXPECT_EQ(text_of(setup), "other words");
  EXPECT_EQ(cache().size(), 6U);  // a run that reads the older cache can continue
}

TEST_F(Open, ADamagedCacheIsMadeAgainWithALine) {
  const batches::Setup setup = text({write("text", "first text")});
  say(setup);
  const auto files = cache();
  const auto shard =
      std::ranges::find_if(files, [](const std::string& path) { return path.ends_with(".bin"); });
  const std::string whole = content(*shard);
  std::string header = whole;
  header[8] = static_cast<char>(header[8] ^ 1);
  for (const std::string& damaged : {whole.substr(0, 1030), header, std::string()}) {
    if (damaged.empty())
      fs::remove(*shard);
    else
      std::ofstream(*shard, std::ios::binary) << damaged;
    EXPECT_THAT(say(setup), HasSubstr("_manifest.json: a shard is missing, or has another size"));
    EXPECT_EQ(content(*shard), whole);
    EXPECT_EQ(cache(), files);
  }
  std::ofstream(*shard) << "somebody's only copy";
  EXPECT_THAT(user_error([&] { say(setup); }), HasSubstr(*shard));
  EXPECT_EQ(content(*shard), "somebody's only copy");
  // A damage that does not change the size is found when the file is read.
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  std::ofstream(*shard, std::ios::binary) << flipped;
  EXPECT_THAT(storage_error([&] { static_cast<void>(text_of(setup)); }), HasSubstr(*shard));
}

TEST_F(Open, FilesOfBytesAreJoinedByNewlines) {
  write("d/1", "one");
  write("d/2", "two\n");
  write("d/3", "\xff!");
  write("d/4", "");
  EXPECT_EQ(text_of(text({at("d")})), "one\ntwo\n\xff!");
  EXPECT_EQ(open(text({at("d")})).tokens->vocabulary(), 256);
}

// Units are cut at 32 MiB, and the newline is put between files of different units, too.
TEST_F(Open, LargeFilesKeepTheirBytes) {
  std::string large(std::size_t{33} << 20U, 'x');
  for (std::size_t at = 99; at < large.size(); at += 100) large[at] = '\n';
  large.back() = '!';
  write("d/1", large);
  write("d/2", "end");
  const std::string read = text_of(text({at("d")}));
  EXPECT_TRUE(read == large + "\nend");
}

TEST_F(Open, AFileThatIsNoManifestIsNotReplaced) {
  const batches::Setup setup = text({write("text", "first text")});
  say(setup);
  const std::string manifest = cache().front();
  ASSERT_TRUE(manifest.ends_with("_manifest.json"));
  std::ofstream(manifest) << "somebody's only copy";
  EXPECT_THAT(user_error([&] { say(setup); }), HasSubstr("is not a manifest of trireme tokenize"));
  EXPECT_EQ(content(manifest), "somebody's only copy");
}

TEST_F(Open, OtherEntriesHaveAnotherCache) {
  say(text({write("a", "aaa")}));
  say(text({write("b", "bbb")}));
  EXPECT_EQ(cache().size(), 6U);
  batches::Setup elsewhere = text({at("a")});
  elsewhere.config.cache.value = at("cache");
  say(elsewhere);
  EXPECT_EQ(cache("cache").size(), 3U);
  EXPECT_EQ(cache().size(), 6U);
}

// Two starts with the same options: one encodes, the other waits and uses the result.
TEST_F(Open, TwoStartsMakeOneCache) {
  const std::string path = write("text", std::string(std::size_t{8} << 20U, 'a'));
  std::vector<std::string> texts(2);
  {
    std::vector<std::jthread> starts;
    for (std::string& text : texts)
      starts.emplace_back([&] {
        const auto world = comm::make_self_world();
        Log log(false, "test");
        const auto stream = open_sources(this->text({path}), *world, log).train.front().tokens;
        text = first(*stream, static_cast<std::size_t>(stream->size()));
      });
  }
  EXPECT_TRUE(texts[0] == content(path));
  EXPECT_TRUE(texts[1] == texts[0]);
  EXPECT_EQ(cache().size(), 3U);
}

TEST_F(Open, DraftsOfKilledStartsGo) {
  const batches::Setup setup = text({write("text", "first text")});
  say(setup);
  const auto files = cache();
  fs::remove(files[1]);
  fs::remove(files[2]);
  const std::string name = fs::path(files[1]).filename();
  for (const char* end : {".host-4711.part", ".index.host-4711.part"})
    write("run/tokens/" + name + end, "half");
  for (const char* end : {".part", ".host-.part"}) write("run/tokens/" + name + end, "mine");
  say(setup);
  EXPECT_EQ(cache().size(), 5U);
}

TEST_F(Open, EvaluationReadsTheSameTokens) {
  write("d/a", "some text\nof lines");
  write("d/b", "more");
  batches::Setup setup = text({at("d")});
  setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
  setup.config.tokenizer = "small";
  setup.vocabulary = 300;
  setup.config.validation_fraction = 0;
  const auto stream = open(setup).tokens;
  std::vector<std::int32_t> cached(static_cast<std::size_t>(stream->size()));
  stream->read(0, cached);
  EXPECT_EQ(tokens::encode_text(tokens::find_text({at("d")}).files, {}, *setup.tokenizer), cached);
}

TEST_F(Open, NamesWhatItLeftOut) {
  write("d/good", "text");
  write("d/binary", std::string("\0", 1));
  fs::create_symlink("nowhere", at("d/dangling"));
  fs::create_symlink("good", at("d/same"));
  const std::string said = say(text({at("d")}));
  EXPECT_THAT(said, HasSubstr("data.train.text: skipped 1 binary file"));
  EXPECT_THAT(said, HasSubstr("skipped 1 file or directory that was found before"));
  EXPECT_THAT(said, HasSubstr("skipped 1 dangling link or special file"));
}

TEST_F(Open, ExactlyOneSource) {
  batches::Setup setup = text({});
  EXPECT_THAT(user_error([&] { say(setup); }),
              HasSubstr("data.train: give one of text, tokens, synthetic and mixture, not 0"));
  setup = text({at("x")});
  setup.config.train.synthetic = 5;
  EXPECT_THAT(user_error([&] { say(setup); }), HasSubstr("not 2"));
}

TEST_F(Open, ShardsAreCheckedAgainstTheVocabulary) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  bytes += std::string("\x50\xc4\x00\x00\x39\x30", 6);
  batches::Setup setup = text({});
  setup.config.train.tokens = {at("*.bin")};
  write("a.bin", bytes);
  EXPECT_THAT(user_error([&] { say(setup); }), HasSubstr("token 0 is 50256"));
  setup.vocabulary = 50304;
  say(setup);
  EXPECT_EQ(open(setup).tokens->size(), 3);
}

TEST_F(Open, ADocumentMaskNeedsDocumentsInTheTokens) {
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  batches::Setup setup = text({});
  setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
  setup.config.tokenizer = "small";
  setup.config.train.tokens = {write("a.bin", bytes + std::string("\1\0\2\0\3\0", 6))};
  setup.vocabulary = 300;
  say(setup);
  setup.document_mask = true;
  EXPECT_THAT(
      user_error([&] { say(setup); }),
      HasSubstr("data.train: model.document_mask finds no documents: the end-of-text token"));
  const auto end = static_cast<char>(*setup.tokenizer->end_of_text() - 256);
  write("a.bin", bytes + std::string("\1\0", 2) + end + std::string("\1\3\0", 3));
  say(setup);
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
  EXPECT_THAT(say(setup), HasSubstr("data.train.format is uint16, which cannot hold the 70000"));
}

TEST_F(Open, DocumentsForValidationAreChosenByAHash) {
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += "document " + std::to_string(i) + "<|endoftext|>";
  batches::Setup setup = text({write("stories", lines)});
  setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
  setup.config.tokenizer = "small";
  setup.vocabulary = 300;
  const std::string said = say(setup);
  EXPECT_THAT(said, HasSubstr("found 400 separators \"<|endoftext|>\" between 400 documents"));
  EXPECT_THAT(said, HasSubstr("whole documents chosen by a hash, are validation data"));
  const Stream stream = open(setup);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.tokens->size()));
  stream.tokens->read(0, tokens);
  ASSERT_GT(stream.validation_tokens, 0);
  EXPECT_LT(stream.validation_tokens, stream.tokens->size() / 5);
  const auto border = stream.tokens->size() - stream.validation_tokens;
  EXPECT_EQ(tokens[static_cast<std::size_t>(border)], setup.tokenizer->end_of_text());
  std::string text;
  setup.tokenizer->decode(tokens, text);
  for (int i = 0; i < 400; ++i)  // every document once and whole
    EXPECT_NE(text.find("document " + std::to_string(i)), std::string::npos) << i;
  const auto parts = split({stream}, std::nullopt,
                           {.context = 8,
                            .sequences = 2,
                            .vocabulary = 300,
                            .validation_fraction = setup.config.validation_fraction});
  EXPECT_EQ(parts.validation->num_tokens(), stream.validation_tokens);

  setup.config.validation.by = ValidationBy::tail;
  const Stream tail = open(setup);
  EXPECT_EQ(tail.validation_tokens, -1);
  EXPECT_EQ(tail.tokens->size(), stream.tokens->size());

  // Too few documents: `automatic` takes the tail, but a request for documents is an error.
  setup.config.train.text = {write("few", "one<|endoftext|>two")};
  setup.config.validation.by = ValidationBy::automatic;
  EXPECT_EQ(open(setup).validation_tokens, -1);
  setup.config.validation.by = ValidationBy::documents;
  setup.config.validation_fraction = 1e-9;
  EXPECT_THAT(user_error([&] { say(setup); }), HasSubstr("the hash chose none of the 2 documents"));

  // Equal documents are chosen together; here all documents are equal.
  std::string equal;
  for (int i = 0; i < 200; ++i) equal += "the same document<|endoftext|>";
  setup.config.train.text = {write("equal", equal)};
  setup.config.validation_fraction = 1 - 1e-9;
  EXPECT_THAT(user_error([&] { say(setup); }),
              HasSubstr("no training data: the hash chose all of"));
  setup.config.validation.by = ValidationBy::automatic;
  EXPECT_EQ(open(setup).validation_tokens, -1);
}

TEST_F(Open, WarnsOfATailOfOtherFiles) {
  write("t/a.txt", std::string(1000, 'a'));
  const std::string other = write("t/z.txt", std::string(300, '7'));
  batches::Setup setup = text({at("t")});
  setup.config.validation_fraction = 0.25;
  EXPECT_THAT(say(setup), HasSubstr("most of it from " + other + " on"));
  setup.config.validation_fraction = 0.05;
  write("t/z.txt", std::string(301, '7'));
  EXPECT_THAT(say(setup), testing::Not(HasSubstr("most of it")));
}

TEST_F(Open, WarnsOfValidationDataThatAreTrainedOn) {
  batches::Setup setup = text({write("t/a.txt", std::string(1000, 'a'))});
  setup.config.validation.text = {write("t/b.txt", std::string(1000, 'b'))};
  EXPECT_THAT(say(setup), testing::Not(HasSubstr("trained on")));
  setup.config.validation.text = {write("t/copy.txt", std::string(1000, 'a'))};
  EXPECT_THAT(say(setup), HasSubstr("are in data.train as well"));
}

// A terabyte in 1000 sparse shards: opening reads only headers; offsets go beyond 2^32.
TEST_F(Open, ATerabyteOfShardsIsNotRead) {
  constexpr std::int64_t shards = 1000, tokens_each = 500'000'000;
  const std::int64_t bytes = 2 * tokens_each, rest = bytes % tokens::block_bytes;
  const std::string zeros(static_cast<std::size_t>(tokens::block_bytes), '\0');
  tokens::TokenIndex index{
      .blocks =
          std::vector(static_cast<std::size_t>(bytes / tokens::block_bytes), hash_bytes(zeros)),
      .documents = {}};
  index.blocks.push_back(hash_bytes(std::string_view(zeros).substr(0, rest)));
  const tokens::TokenFile like{.path = "", .tokens = tokens_each, .width = 2};
  const auto header = tokens::header_of(like, index, tokens::no_end_of_text);
  tokens::Manifest manifest;
  manifest.vocabulary = 256;
  const std::int32_t front[] = {tokens::llmc_magic_2, 1, static_cast<std::int32_t>(tokens_each)};
  for (int i = 0; i < shards; ++i) {
    const std::string path =
        write(fmt::format("x_train_{:06}.bin", i), {reinterpret_cast<const char*>(front), 12});
    fs::resize_file(path, static_cast<std::uintmax_t>(tokens::llmc_header_bytes + bytes));
    std::ofstream out(tokens::index_of_shard(path), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header), sizeof header);
    out.write(reinterpret_cast<const char*>(index.blocks.data()),
              static_cast<std::streamsize>(8 * index.blocks.size()));
    manifest.train.push_back({fs::path(path).filename(), tokens_each, 1, bytes, header.hash});
  }
  write("x_manifest.json", tokens::to_json(manifest));
  batches::Setup setup = text({});
  setup.config.train.tokens = {at("x_train_*.bin")};
  const auto begun = std::chrono::steady_clock::now();
  const Stream stream = open(setup);
  std::vector<std::int32_t> out(10, 1);
  for (const std::int64_t place : {std::int64_t{1} << 31, std::int64_t{1} << 32,
                                   (std::int64_t{1} << 38) + 7, shards * tokens_each - 10}) {
    stream.tokens->read(place, out);
    EXPECT_THAT(out, testing::Each(0)) << place;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  RecordProperty("seconds", fmt::format("{:.3f}", seconds.count()));
  std::printf("opened %.1f TB in %.3f s\n", 1e-12 * static_cast<double>(shards * bytes),
              seconds.count());
  EXPECT_EQ(stream.tokens->size(), shards * tokens_each);
  // Sample numbers go beyond 2^32.
  const auto parts =
      split({stream}, std::nullopt, {.context = 64, .sequences = 2, .vocabulary = 256});
  EXPECT_EQ(parts.train.num_samples(), (shards * tokens_each - 1) / 64);
  std::vector<std::int32_t> inputs(64), targets(64);
  for (const std::int64_t sample : {(std::int64_t{1} << 32) + 1, parts.train.num_samples() - 1}) {
    parts.train.fill(sample, inputs, targets);
    EXPECT_THAT(targets, testing::Each(0)) << sample;
  }
  EXPECT_FALSE(fs::exists(at("run"))) << "nothing was read that an index should remember";
}

TEST_F(Open, Synthetic) {
  batches::Setup setup = text({});
  setup.config.train.synthetic = 1000;
  setup.seed = 5;
  say(setup);
  const auto stream = open(setup).tokens;
  EXPECT_EQ(stream->size(), 1000);
  EXPECT_EQ(stream->vocabulary(), 256);
}

// The text of the quick start: the header files of the compiler.
TEST_F(Open, TheHeadersOfTheCompiler) {
  if (!fs::exists("/usr/include/c++"))
    GTEST_SKIP() << "no /usr/include/c++ here";
  const batches::Setup setup = text({"/usr/include/c++"});
  say(setup);
  const auto stream = open(setup).tokens;
  EXPECT_GT(stream->size(), 5'000'000);
  const auto parts =
      split({Stream{stream}}, std::nullopt,
            {.context = 64, .sequences = 16, .vocabulary = 256, .validation_fraction = 0.1});
  std::vector<std::int32_t> tokens(64), targets(64);
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    parts.train.fill(sample, tokens, targets);
    EXPECT_EQ(std::vector(tokens.begin() + 1, tokens.end()),
              std::vector(targets.begin(), targets.end() - 1));
  }
}

}  // namespace
}  // namespace trireme::batches
