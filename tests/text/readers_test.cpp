// SPDX-License-Identifier: Apache-2.0
#include "text/readers.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/vocabularies.hpp"
#include "text/write.hpp"
#include "tokens/scratch.hpp"

namespace trireme::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string merges = "#version: 0.2\na b\n\u0120 ab\n";
Vocabulary small() {
  return vocabulary_of({{"a", "b"}, {" ", "ab"}});
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class Readers : public tokens::Scratch {
 protected:
  /// The messages about a directory with this file.
  std::string said(std::string_view name, std::string_view content) {
    write(name, content);
    return user_error([&] { load_tokenizer(at(name)); });
  }
  std::string base64_ranks(int count) const {
    const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string lines;
    for (int id = 0; id < count; ++id) {
      const unsigned byte = byte_of_gpt2_id(id);
      lines += std::string{digits[byte >> 2U], digits[(byte & 3U) << 4U]} +
               "== " + std::to_string(id) + "\n";
    }
    return lines;
  }
};

TEST(Alphabet, IsGpt2s) {
  EXPECT_EQ(byte_of_gpt2_id(0), '!');
  EXPECT_EQ(byte_of_gpt2_id(94), 0xA1);
  EXPECT_EQ(byte_of_gpt2_id(198), '\n');
  EXPECT_EQ(byte_of_gpt2_id(220), ' ');
  EXPECT_EQ(byte_of_gpt2_id(255), 0xAD);
  EXPECT_EQ(to_alphabet(" a\n\xc3\xa9"), "\u0120a\u010a\u00c3\u00a9");
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  EXPECT_EQ(from_alphabet(to_alphabet(all)), all);
  EXPECT_FALSE(from_alphabet(" "));
  EXPECT_FALSE(from_alphabet("\u4f60"));
  EXPECT_FALSE(from_alphabet("\xc4"));
}

TEST_F(Readers, TakeTokenizerJsonInBothSpellingsOfMerges) {
  const std::string json = tokenizer_json(small());
  write("one/tokenizer.json", json);
  write("two/tokenizer.json", replaced(json, "\"a b\"", "[\"a\", \"b\"]"));
  EXPECT_EQ(load_tokenizer(at("one"))->serialized(), to_text(small()));
  EXPECT_EQ(load_tokenizer(at("two"))->hash(), load_tokenizer(at("one"))->hash());
}

TEST_F(Readers, RefuseByItsKeyWhatTokenizerJsonAsksForAndIsNotImplemented) {
  const std::string json = tokenizer_json(small());
  const auto says = [&](std::string_view from, std::string_view to) {
    return said("tokenizer.json", replaced(json, from, to));
  };
  EXPECT_THAT(says("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}"),
              HasSubstr("tokenizer.json: error: normalizer: 'NFKC' is not supported"));
  EXPECT_THAT(says("\"byte_fallback\": false", "\"byte_fallback\": true"),
              HasSubstr("decoder.type: only Sequence is implemented with byte_fallback: true"));
  EXPECT_THAT(says("\"dropout\": null", "\"dropout\": 0.1"), HasSubstr("model.dropout"));
  EXPECT_THAT(says("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
              HasSubstr("pre_tokenizer.add_prefix_space"));
  EXPECT_THAT(says("\"type\": \"ByteLevel\"", "\"type\": \"Metaspace\""),
              HasSubstr("pre_tokenizer.type: 'Metaspace'"));
  EXPECT_THAT(says("\"type\": \"BPE\"", "\"type\": \"Unigram\""), HasSubstr("model.type"));
  EXPECT_THAT(
      said("tokenizer.json", replaced(replaced(json, "\"special\": true", "\"special\": false"),
                                      "\"lstrip\": false", "\"lstrip\": true")),
      HasSubstr("added_tokens[0].lstrip"));
  EXPECT_THAT(says("\"version\"", "\"new_thing\": 1, \"version\""), HasSubstr("new_thing"));
  EXPECT_THAT(says("\"a b\"", "\"a  b\""), HasSubstr("model.merges[0]"));
  EXPECT_THAT(says("\"ab\": 256", "\"ab\": 2560000"), HasSubstr("model.vocab.ab: id 2560000"));
  EXPECT_THAT(says("\"ab\": 256", "\"ab\": 64"), HasSubstr("id 64 is given twice"));
  EXPECT_THAT(says("\"ab\": 256", "\"ab\": 256, \"ab\": 256"),
              HasSubstr("ab: the key occurs twice"));
  EXPECT_THAT(says("\"ab\": 256", "\"ab\": 256,,"), HasSubstr("tokenizer.json:"));
  EXPECT_THAT(said("tokenizer.json", json.substr(0, json.size() / 2)),
              HasSubstr("the file was truncated"));
  EXPECT_THAT(said("tokenizer.json", std::string(100, '[')), HasSubstr("32 levels"));
  EXPECT_THAT(said("tokenizer.json", "[1]"), HasSubstr("tokenizer.json"));
}

TEST_F(Readers, IgnoreTruncationAndPadding) {
  const std::string json = tokenizer_json(small());
  write("tokenizer.json",
        replaced(replaced(json, "\"truncation\": null", "\"truncation\": {\"max_length\": 8}"),
                 "\"padding\": null", "\"padding\": {\"pad_id\": 0}"));
  EXPECT_EQ(load_tokenizer(directory_)->serialized(), to_text(small()));
}

TEST_F(Readers, NormalizeAndFindAddedTokensThatAreNotSpecial) {
  Vocabulary vocabulary = small();
  const auto think = static_cast<Token>(vocabulary.tokens.size());
  vocabulary.tokens.push_back({"<think>", false, true});
  vocabulary.tokens.push_back({"<think>\n", false, true});
  vocabulary.nfc = true;
  const std::string json = tokenizer_json(vocabulary);
  write("tokenizer.json", json);
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->serialized(), to_text(vocabulary));
  EXPECT_EQ(tokenizer_from(tokenizer->serialized())->hash(), tokenizer->hash());
  EXPECT_THAT(tokenizer->uncut(), testing::ElementsAre("<think>", "<think>\n"));
  std::vector<Token> tokens;
  tokenizer->encode("a<think>b<think>\ne\u0301", tokens);
  std::string text;
  tokenizer->decode(tokens, text);
  EXPECT_EQ(text, "a<think>b<think>\n\u00e9");
  EXPECT_EQ(tokens.at(1), think);
  EXPECT_EQ(tokens.at(3), think + 1);
  EXPECT_EQ(tokenizer->bytes_of(think), 7);
}

TEST_F(Readers, RefuseAddedTokensThatTheNormalizerChanges) {
  Vocabulary vocabulary = small();
  vocabulary.nfc = true;
  const auto with = [&](const char* token) {
    vocabulary.tokens.push_back({token, false, true});
    const std::string json = tokenizer_json(vocabulary);
    vocabulary.tokens.pop_back();
    const std::size_t at = json.find("\"normalized\": false", json.find(token));
    return std::string(json).replace(at, 19, "\"normalized\": true");
  };
  write("tokenizer.json", with("  "));
  EXPECT_THAT(load_tokenizer(directory_)->uncut(), testing::ElementsAre("  "));
  EXPECT_THAT(said("tokenizer.json", with("e\u0301")),
              HasSubstr("].normalized: true is not supported for a token"));
}

TEST_F(Readers, NameAnAddedTokenInAMerge) {
  const std::string json = tokenizer_json(small());
  EXPECT_THAT(said("tokenizer.json",
                   replaced(json, "\"added_tokens\": [",
                            R"("added_tokens": [{"id": 64, "content": "a", "special": false}, )")),
              HasSubstr("model.merges[0]: merges of 'a', an added token, are not supported"));
}

TEST_F(Readers, TellWhatBeginsATextFromWhatEndsIt) {
  Vocabulary llama;
  llama.tokens = small().tokens;
  llama.merges = small().merges;
  std::erase_if(llama.tokens, [](const VocabularyEntry& entry) { return entry.special; });
  const auto first = static_cast<Token>(llama.tokens.size());
  for (const char* name : {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"})
    llama.tokens.push_back({name, true});
  write("tokenizer.json", tokenizer_json(llama));
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->end_of_text(), first);
  EXPECT_THAT(tokenizer->ends_of_text(), testing::ElementsAre(first + 1, first + 2, first));
  write("tokenizer.json", tokenizer_json(small()));
  EXPECT_THAT(load_tokenizer(directory_)->ends_of_text(),
              testing::ElementsAre(*load_tokenizer(directory_)->end_of_text()));
}

TEST_F(Readers, TakeEveryPatternAsItIsWritten) {
  for (const Pattern pattern :
       {Pattern::gpt2, Pattern::cl100k, Pattern::llama3, Pattern::nanochat, Pattern::qwen2,
        Pattern::o200k, Pattern::tekken, Pattern::deepseek, Pattern::smollm}) {
    Vocabulary vocabulary = small();
    vocabulary.pattern = pattern;
    write("tokenizer.json", tokenizer_json(vocabulary));
    EXPECT_EQ(load_tokenizer(directory_)->serialized(), to_text(vocabulary)) << word(pattern);
  }
}

TEST_F(Readers, TakeTheTokenThatATemplatePutsBeforeATextForItsBeginning) {
  Vocabulary vocabulary = small();
  vocabulary.tokens.push_back({"<|start|>", true});
  const std::string json = replaced(
      tokenizer_json(vocabulary), "\"post_processor\": null",
      R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|start|>"}}]})");
  write("tokenizer.json", json);
  EXPECT_EQ(load_tokenizer(directory_)->end_of_text(), 259);
  EXPECT_THAT(
      said("tokenizer.json", replaced(json, "{\"id\": \"<|start|>\"}", "{\"id\": \"<s>\"}")),
      HasSubstr("'<s>' is not in added_tokens"));
}

TEST_F(Readers, NameTheLineOfAMergeThatIsWrong) {
  write("vocab.json", vocab_json(small()));
  write("merges.txt", merges);
  EXPECT_EQ(load_tokenizer(directory_)->serialized(), to_text(small()));
  const auto says = [&](std::string_view text) {
    write("merges.txt", text);
    return user_error([&] { load_tokenizer(directory_); });
  };
  EXPECT_THAT(says("#version: 0.2\na b\n"), HasSubstr("no line makes token 257"));
  EXPECT_THAT(says("#version: 0.2\na b\n\n"), HasSubstr("merges.txt:3:1: error: a merge is two"));
  EXPECT_THAT(says("#version: 0.2\nb a\n"), HasSubstr("merges.txt:2:1: error: 'ba' is not"));
  EXPECT_THAT(says(merges + "a b\n"),
              HasSubstr("merges.txt:4:1: error: the same merge as in line 2"));
  EXPECT_THAT(says("a b c\n"), HasSubstr("merges.txt:1"));
  std::filesystem::remove(at("merges.txt"));
  EXPECT_THAT(user_error([&] { load_tokenizer(directory_); }),
              HasSubstr("there is no merges.txt next to"));
}

TEST_F(Readers, TakeRanksWithACompanion) {
  const std::string lines = base64_ranks(256) + "YWI= 256\n";
  EXPECT_THAT(said("x.tiktoken", lines), HasSubstr("257 ranks match no known vocabulary"));
  write("x.tiktoken.json", R"({"pattern": "llama3", "special_tokens": {"<|bos|>": 300}})");
  const auto tokenizer = load_tokenizer(at("x.tiktoken"));
  EXPECT_EQ(tokenizer->vocabulary(), 301);
  EXPECT_EQ(tokenizer->end_of_text(), 300);
  EXPECT_THAT(encoded(*tokenizer, "abc"), ElementsAre(256, 66));
  EXPECT_THAT(said("x.tiktoken", lines + "YW* 257\n"), HasSubstr("x.tiktoken:258"));
  EXPECT_THAT(said("x.tiktoken", lines + "YWI=\n"), HasSubstr("x.tiktoken:258"));
  EXPECT_THAT(said("x.tiktoken", lines + "YWM= -1\n"), HasSubstr("x.tiktoken:258"));
  EXPECT_THAT(said("x.tiktoken", lines + "YWM= 256\n"), HasSubstr("id 256 is given twice"));
  EXPECT_THAT(said("x.tiktoken", lines + "YWM= 9999999\n"), HasSubstr("far above"));
  write("x.tiktoken.json", R"({"pattern": "gpt5"})");
  EXPECT_THAT(user_error([&] { load_tokenizer(at("x.tiktoken")); }),
              HasSubstr("x.tiktoken.json: error: pattern: it must be one of gpt2"));
}

TEST_F(Readers, TakeLlmcsTokenizerFile) {
  const auto file = [](std::int32_t version, std::int32_t tokens, int held) {
    std::int32_t header[256] = {20240328, version, tokens, 257};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
    const Vocabulary vocabulary = vocabulary_of({{"a", "b"}});
    for (int id = 0; id < held; ++id) {
      const std::string& token = vocabulary.tokens[static_cast<std::size_t>(id)].bytes;
      bytes += static_cast<char>(token.size()) + token;
    }
    return bytes;
  };
  EXPECT_THAT(said("x.bin", file(2, 258, 258)), HasSubstr("258 tokens are not GPT-2's 50257"));
  write("x.bin.json", R"({"pattern": "gpt2"})");
  const auto tokenizer = load_tokenizer(at("x.bin"));
  EXPECT_EQ(tokenizer->end_of_text(), 257);
  EXPECT_THAT(encoded(*tokenizer, "abab"), ElementsAre(256, 256));
  EXPECT_THAT(said("x.bin", file(2, 258, 257)), HasSubstr("within token 257 of 258"));
  EXPECT_THAT(said("x.bin", file(2, 258, 258) + "x"), HasSubstr("1 bytes follow"));
  EXPECT_THAT(said("x.bin", file(3, 258, 258)), HasSubstr("at byte 0"));
  EXPECT_THAT(said("x.bin", file(2, 100, 100)), HasSubstr("at byte 8"));
  EXPECT_THAT(said("x.bin", "short"), HasSubstr("5 bytes"));
}

TEST_F(Readers, NameWhatADirectoryLacks) {
  EXPECT_THAT(user_error([&] { load_tokenizer(at("nowhere")); }), HasSubstr("No such file"));
  std::filesystem::create_directories(at("folder/tokenizer.json"));
  EXPECT_THAT(user_error([&] { load_tokenizer(at("folder")); }), HasSubstr("this is a directory"));
  std::filesystem::create_symlink("loop.json", at("loop.json"));
  EXPECT_THAT(user_error([&] { load_tokenizer(at("loop.json")); }), HasSubstr("symbolic links"));
  EXPECT_THAT(user_error([&] { load_tokenizer("/dev/zero"); }), HasSubstr("this is a device"));
  std::filesystem::create_directory(at("empty"));
  EXPECT_THAT(user_error([&] { load_tokenizer(at("empty")); }),
              HasSubstr("vocab.json with merges.txt, nor one file *.tiktoken"));
  write("two/a.tiktoken", "");
  write("two/b.bin", "");
  EXPECT_THAT(user_error([&] { load_tokenizer(at("two")); }), HasSubstr("several tokenizers"));
  EXPECT_THAT(said("notes.txt", "hello"), HasSubstr("must be named *.json, "));
  EXPECT_THAT(said("x.tiktoken", ""), HasSubstr("the file is empty"));
  EXPECT_THAT(said("gpt2-vocab.json", R"({"a": 0, "b": 1})"),
              HasSubstr("must be named vocab.json"));
  EXPECT_THAT(said("x.model", "\x0a\x0b"),
              HasSubstr("x.model: error: at byte 2: this is not a model of SentencePiece"));
}

}  // namespace
}  // namespace trireme::text
