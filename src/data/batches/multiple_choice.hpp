// SPDX-License-Identifier: Apache-2.0
// Multiple-choice questions: a context, and choices of how it continues, one of which is right.
//
//   hellaswag   llm.c's evaluation file (dev/data/data_common.py, write_evalfile, there), numbers
//               of 16 bits, little-endian, after a header of 256 int32: magic 20240522, version 1,
//               number of examples, bytes of the longest; per example 65535, its bytes, its index,
//               the label, the number of choices, then the context and each choice as a count and
//               tokens
//   jsonl       a JSON object per line: a text under "context", "ctx" or "query", a list of texts
//               under "choices" or "endings", and the number of the right one, from 0, under
//               "label", "gold" or "answer". Blank lines are ignored. There is one space before the
//               choice if neither the context ends nor the choice begins with white space. As in
//               lm-evaluation-harness, white space that ends the context belongs to the choice,
//               whose tokens are those by which the text with it exceeds the context's
//
// 1. A file is read completely or not at all. The first mistakes are reported with the line, or
//    with the example and its byte offset.
// 2. Every context and every choice has at least one token. The context begins with the tokenizer's
//    begin_of_text(). An empty one is the end-of-text token if the tokenizer has one, and otherwise
//    a mistake.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/key.hpp"

#include "text/tokenizer.hpp"

namespace trireme::batches {

enum class ChoiceFormat : std::uint8_t { hellaswag, jsonl };

struct Question {
  std::vector<std::int32_t> context;
  std::vector<std::vector<std::int32_t>> choices;  ///< two at least
  std::int64_t label = 0;                          ///< the right one
  std::vector<std::int64_t> lengths;  ///< characters of the choices, without spaces before them;
                                      ///< empty without a tokenizer

  auto fields() { return std::tie(context, choices, label, lengths); }
};

struct QuestionRequirements {
  ChoiceFormat format = ChoiceFormat::hellaswag;
  std::int64_t vocabulary = 0;                 ///< of the model
  std::int64_t context = 0;                    ///< the longest choice that it can judge
  const text::Tokenizer* tokenizer = nullptr;  ///< jsonl needs one
};

/// Throws UserError for a file that is missing, empty or not of the format, StorageError for one
/// that cannot be read.
std::vector<Question> read_questions(const std::string& path,
                                     const QuestionRequirements& requirements);

}  // namespace trireme::batches
