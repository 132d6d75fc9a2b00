// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "text/vocabularies.hpp"
#include "text/write.hpp"

namespace trireme::text {
namespace {

/// The same tokens with merge rule `ranked`.
Vocabulary ranked(Vocabulary vocabulary) {
  vocabulary.rule = MergeRule::ranked;
  vocabulary.merges.clear();
  return vocabulary;
}

TEST(ListedVocabulary, FindsTheMergesThatRanksMean) {
  const Vocabulary vocabulary = vocabulary_of({{"t", "h"},
                                               {"th", "e"},
                                               {" ", "the"},
                                               {"a", "a"},
                                               {"aa", "aa"},
                                               {"aaaa", "a"},
                                               {"e", " "},
                                               {"\xc3", "\xa9"},
                                               {" the", "aa"}});
  const Vocabulary found = listed_vocabulary(to_text(ranked(vocabulary)));
  EXPECT_EQ(found, vocabulary);
  const auto by_rank = make_tokenizer(ranked(vocabulary), "test");
  const auto by_list = make_tokenizer(found, "test");
  for (const char* text : {"the theaa aaaaaaa", " the the", "th\xc3\xa9 e \xc3", ""})
    EXPECT_EQ(encoded(*by_rank, text), encoded(*by_list, text)) << text;
}

TEST(ListedVocabulary, LeavesAListAsItIs) {
  const Vocabulary vocabulary = vocabulary_of({{"a", "b"}, {" ", "ab"}});
  EXPECT_EQ(listed_vocabulary(to_text(vocabulary)), vocabulary);
}

TEST(ListedVocabulary, OfBytesHasNoMerges) {
  const Vocabulary bytes = listed_vocabulary(byte_tokenizer()->serialized());
  const auto tokenizer = make_tokenizer(bytes, "test");
  EXPECT_EQ(encoded(*tokenizer, "ab\xff"), (std::vector<Token>{'a', 'b', 255}));
  EXPECT_FALSE(tokenizer->end_of_text());
}

TEST(ListedVocabulary, RefusesATokenThatNoTwoOthersMake) {
  Vocabulary vocabulary = ranked(vocabulary_of({{"a", "b"}}));
  vocabulary.tokens.push_back({"xyz", false});
  try {
    listed_vocabulary(to_text(vocabulary));
    ADD_FAILURE() << "a list of merges without a merge";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("token 258 (\"xyz\") is not a merge of two"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::text
