// SPDX-License-Identifier: Apache-2.0
#include "batches/provenance.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "batches/open.hpp"
#include "corpus/tokenize.hpp"
#include "text/vocabularies.hpp"
#include "tokens/megatron_files.hpp"
#include "tokens/scratch.hpp"
#include "tokens/token_files.hpp"

namespace trireme::batches {
namespace {

class ProvenanceTest : public tokens::Scratch {
 protected:
  [[nodiscard]] batches::Setup setup() const {
    batches::Setup setup;
    setup.default_cache_directory = at("cache");
    setup.vocabulary = 1000;
    return setup;
  }
  [[nodiscard]] Stream open(const batches::Setup& setup) const {
    Log log(false, "test");
    const auto world = comm::make_self_world();
    return open_sources(setup, *world, log).train.front();
  }
};

std::vector<std::int32_t> tokens_of(const Stream& stream, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - begin));
  stream.tokens->read(begin, tokens);
  return tokens;
}

/// Calls check(document, its tokens) for all documents of the stream, which find() finds again from
/// their first byte or token.
template <class Check>
void each_document(const Stream& stream, Check&& check) {
  Provenance origin(stream);
  std::int64_t at = 0;
  while (at < stream.tokens->size()) {
    const Document one = origin.document(at);
    ASSERT_EQ(one.begin, at);
    ASSERT_GT(one.end, at);
    EXPECT_EQ(Provenance(stream).document((one.begin + one.end) / 2).begin, at);
    EXPECT_EQ(origin.find(one.file, one.offset).value().begin, at);
    check(one, tokens_of(stream, one.begin, one.end));
    at = one.end;
  }
  EXPECT_EQ(at, stream.tokens->size());
}

TEST_F(ProvenanceTest, KnowsTheLinesOfJson) {
  std::string lines;
  std::vector<std::string> texts;
  std::vector<std::int64_t> offsets;
  for (int i = 0; i < 100; ++i) {
    offsets.push_back(std::ssize(lines));
    texts.push_back(
        fmt::format("text {} {}", i, std::string(static_cast<std::size_t>(i % 7), 'x')));
    lines += fmt::format("{{\"t\": \"{}\"}}\n{}", texts.back(), i % 5 == 0 ? "\n" : "");
  }
  for (const double fraction : {0.0, 0.3}) {
    batches::Setup setup = this->setup();
    setup.config.train.text = {write("a.jsonl", lines)};
    setup.config.train.field = "t";
    setup.config.validation_fraction = fraction;
    setup.config.validation.by = ValidationBy::documents;
    const Stream stream = open(setup);
    EXPECT_EQ(stream.validation_tokens > 0, fraction > 0);
    std::size_t documents = 0;
    each_document(stream, [&](const Document& one, std::vector<std::int32_t> tokens) {
      const auto number = std::ranges::find(offsets, one.offset) - offsets.begin();
      const std::string& text = texts.at(static_cast<std::size_t>(number));
      if (tokens.size() == text.size() + 1)
        tokens.erase(tokens.begin());  // the line feed between two documents
      EXPECT_EQ(tokens, std::vector<std::int32_t>(text.begin(), text.end()));
      ++documents;
    });
    EXPECT_EQ(documents, texts.size());
    // A byte within a line, and one after the end of the file.
    Provenance origin(stream);
    EXPECT_EQ(origin.find(at("a.jsonl"), offsets[77] + 3).value().offset, offsets[77]);
    EXPECT_FALSE(origin.find(write("b.jsonl", lines), 0));
  }
}

/// Documents of plain text in two files, one of them longer than a shard of 64 KiB.
class Shards : public ProvenanceTest {
 protected:
  Shards() {
    for (int i = 0; i < 40; ++i) {
      std::string text = fmt::format("document {} ", i);
      for (int word = 0; word < (i == 20 ? 40'000 : i % 3 * 3000); ++word)
        text += fmt::format("ab{} ", word % 10);
      std::string& file = files_[i < 30 ? 0 : 1];
      file += file.empty() ? "" : "<|endoftext|>";
      texts_[{i < 30 ? at("t/a.txt") : at("t/b.txt"), std::ssize(file)}] = text;
      file += text;
    }
    write("t/a.txt", files_[0]);
    write("t/b.txt", files_[1]);
    request_.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
    request_.text = {at("t")};
    request_.format =
        tokens::text_format("", "auto", tokens::BadLines::stop, *request_.tokenizer, "");
    request_.output = at("shards");
    request_.shard_bytes = corpus::least_shard_bytes;
    Log log(false, "test");
    const auto world = comm::make_self_world();
    const auto corpus = corpus::tokenize(request_, *world, log);
    EXPECT_GT(corpus.manifest.train.size(), 5U);
    const auto found = tokens::check_token_files(
        {at("shards_train_*.bin")}, "",
        {.vocabulary = 300, .end_of_text = request_.tokenizer->end_of_text()}, *world);
    stream_.tokens = tokens::open_token_files(found, 300);
    stream_.files = found.files;
  }
  [[nodiscard]] std::vector<std::int32_t> encoded(const std::string& text) const {
    auto tokens = text::encoded(*request_.tokenizer, text);
    tokens.insert(tokens.begin(), *request_.tokenizer->end_of_text());
    return tokens;
  }

  std::string files_[2];
  std::map<std::pair<std::string, std::int64_t>, std::string> texts_;  // by file and first byte
  corpus::TokenizeRequest request_;
  Stream stream_;
};

TEST_F(Shards, OfTextAreTracedToItsDocuments) {
  stream_.text = std::make_shared<const corpus::TokenizeRequest>(request_);
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::int32_t>> found;
  each_document(stream_, [&](const Document& one, const std::vector<std::int32_t>& tokens) {
    auto whole = texts_.upper_bound({one.file, one.offset});  // a shard may cut it
    auto& all = found[std::prev(whole)->first];
    all.insert(all.end(), tokens.begin(), tokens.end());
  });
  EXPECT_EQ(found.size(), texts_.size());
  for (const auto& [place, text] : texts_) EXPECT_EQ(found.at(place), encoded(text));
  Provenance origin(stream_);
  for (const auto& [place, text] : texts_) {  // the last byte
    const auto [file, offset] = place;
    const auto document = origin.find(file, offset + std::ssize(text) - 1).value();
    EXPECT_GE(document.offset, offset);
    EXPECT_LT(document.offset, offset + std::ssize(text));
  }
}

TEST_F(Shards, WithoutTheTextHaveDocumentsByToken) {
  std::size_t documents = 0;
  each_document(stream_, [&](const Document& one, const std::vector<std::int32_t>& tokens) {
    const auto shard = std::ranges::find(stream_.files, one.file, &tokens::TokenFile::path);
    std::int64_t begin = 0;
    for (auto file = stream_.files.begin(); file != shard; ++file) begin += file->tokens;
    EXPECT_EQ(one.begin, begin + one.offset);
    const bool begins = tokens.front() == request_.tokenizer->end_of_text();
    EXPECT_TRUE(begins || one.offset == 0);
    documents += begins ? 1 : 0;
  });
  EXPECT_EQ(documents, texts_.size());
}

// The documents that an index of Megatron states, also with a mark in front of each.
TEST_F(ProvenanceTest, KnowsTheDocumentsOfMegatron) {
  for (const bool marks : {false, true}) {
    batches::Setup setup = this->setup();
    for (const char* name : {"m", "n"}) {
      setup.config.train.tokens.push_back(
          write(fmt::format("{}.bin", name), tokens::tokens_of<std::uint16_t>()));
      write(fmt::format("{}.idx", name), tokens::index_of(8, 2));
    }
    setup.tokenizer = text::make_tokenizer(text::vocabulary_of({{"a", "b"}}), "small");
    setup.config.tokenizer = "small";
    setup.document_mask = marks;
    const Stream stream = open(setup);
    ASSERT_EQ(stream.tokens->size(), marks ? 22 : 18);
    std::vector<std::int64_t> offsets;
    each_document(stream, [&](const Document& one, const std::vector<std::int32_t>& tokens) {
      offsets.push_back(one.offset);
      std::vector<std::int32_t> wanted;
      if (marks)
        wanted.push_back(*setup.tokenizer->end_of_text());
      for (auto token = static_cast<std::int32_t>(one.offset) + 1;
           token <= (one.offset < 5 ? 5 : 9); ++token)
        wanted.push_back(token);
      EXPECT_EQ(tokens, wanted);
    });
    EXPECT_THAT(offsets, testing::ElementsAre(0, 5, 0, 5));
    EXPECT_EQ(Provenance(stream).find(at("n.bin"), 6).value().offset, 5);
  }
}

TEST_F(ProvenanceTest, TakesAFileWithoutKnownDocumentsAsOne) {
  batches::Setup setup = this->setup();
  setup.config.train.tokens = {write("a", std::string(20, '\1')),
                               write("b", std::string(40, '\1'))};
  setup.config.train.format = tokens::TokenFormat::uint16;
  const Stream stream = open(setup);
  each_document(stream, [&](const Document& one, const std::vector<std::int32_t>&) {
    EXPECT_EQ(one.offset, 0);
    EXPECT_EQ(one.begin, one.file == at("a") ? 0 : 10);
  });
  EXPECT_EQ(Provenance(stream).find(at("b"), 19).value().end, 30);
  EXPECT_FALSE(Provenance(stream).find(at("b"), 20));
}

}  // namespace
}  // namespace trireme::batches
