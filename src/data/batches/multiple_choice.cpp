// SPDX-License-Identifier: Apache-2.0
#include "batches/multiple_choice.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "text/characters.hpp"
#include "text/json_file.hpp"
#include "tokens/sources.hpp"

namespace trireme::batches {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

constexpr std::size_t choice_header_bytes = 1024, number_bytes = 2;
constexpr std::int32_t choice_magic = 20240522, choice_version = 1;
constexpr std::uint16_t start = 65535;

struct Wrong {
  std::string text;
};

template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> text, Args&&... args) {
  throw Wrong{fmt::format(text, std::forward<Args>(args)...)};
}

void expect_usable(const Question& question, const QuestionRequirements& requirements) {
  if (question.choices.size() < 2)
    wrong("has {} choice{}", question.choices.size(), question.choices.size() == 1 ? "" : "s");
  if (question.label < 0 || question.label >= std::ssize(question.choices))
    wrong("the label {} names none of {} choices", question.label, question.choices.size());
  const auto expect_tokens = [&](const Tokens& tokens, const std::string& what) {
    if (tokens.empty())
      wrong("{} is empty", what);
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= requirements.vocabulary)
        wrong("{} holds token {}, which a vocabulary of {} does not have", what, token,
              requirements.vocabulary);
  };
  expect_tokens(question.context, "the context");
  for (std::size_t i = 0; i < question.choices.size(); ++i) {
    expect_tokens(question.choices[i], fmt::format("choice {}", i));
    if (std::ssize(question.choices[i]) > requirements.context)
      wrong("choice {} has {} tokens, and the model's context {}", i, question.choices[i].size(),
            requirements.context);
  }
}

/// The first of `names` that the object has.
const json* find(const json& object, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = object.find(name); found != object.end())
      return &*found;
  return nullptr;
}

std::string text_of(const json* value, const char* what) {
  if (value == nullptr)
    wrong("has no {}", what);
  if (!value->is_string())
    wrong("{} is not text but {}", what, value->type_name());
  return value->get<std::string>();
}

/// How many bytes at the end are what Python's rstrip() removes.
std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, end); ++back) {
    const auto* const at = reinterpret_cast<const unsigned char*>(text.data()) + end - back;
    const auto c = text::character_at(at, at + back, text::kinds_of_code_points());
    if (c.bytes == back && (c.kind == text::Kind::space || (*at >= 0x1C && *at <= 0x1F))) {
      end -= back;
      back = 0;
    }
  }
  return text.size() - end;
}

bool begins_with_space(std::string_view text) {
  const auto* const at = reinterpret_cast<const unsigned char*>(text.data());
  return text::character_at(at, at + text.size(), text::kinds_of_code_points()).kind ==
         text::Kind::space;
}

/// Characters of a choice, without spaces before it.
std::int64_t length_of(std::string_view choice) {
  choice.remove_prefix(std::min(choice.find_first_not_of(' '), choice.size()));
  return std::ranges::count_if(choice, [](char c) { return (c & 0xC0) != 0x80; });
}

Question from_json(std::string_view line, const QuestionRequirements& requirements) {
  const json object = json::parse(line, nullptr, false);
  if (object.is_discarded() || !object.is_object())
    wrong("is not a JSON object");
  Question question;
  std::string context = text_of(find(object, {"context", "ctx", "query"}), "context");
  const text::Tokenizer& tokenizer = *requirements.tokenizer;
  const bool empty = context.empty();
  const std::string moved = context.substr(context.size() - space_at_end(context));
  context.resize(context.size() - moved.size());
  tokenizer.encode(context, question.context);
  const auto before = std::ssize(question.context);
  const json* choices = find(object, {"choices", "endings"});
  if (choices == nullptr || !choices->is_array())
    wrong("has no list of choices");
  for (const json& choice : *choices) {
    const std::string text = text_of(&choice, "a choice");
    const bool joined = empty || text.empty() || !moved.empty() || begins_with_space(text);
    Tokens& tokens = question.choices.emplace_back();
    tokenizer.encode(context + moved + (joined ? "" : " ") + text, tokens);
    tokens.erase(tokens.begin(), tokens.begin() + std::min(std::ssize(tokens), before));
    question.lengths.push_back(length_of(text));
  }
  if (tokenizer.begin_of_text())
    question.context.insert(question.context.begin(), *tokenizer.begin_of_text());
  if (question.context.empty() && tokenizer.end_of_text())
    question.context.push_back(*tokenizer.end_of_text());
  const json* label = find(object, {"label", "gold", "answer"});
  if (label == nullptr)
    wrong("has no label");
  // The published HellaSwag has the label of its training part as a number, elsewhere as its text.
  if (label->is_number_unsigned() && label->get<std::uint64_t>() < (1U << 30U))
    question.label = label->get<std::int64_t>();
  else if (const auto* text = label->get_ptr<const std::string*>();
           text != nullptr && text->size() == 1 && '0' <= text->front() && text->front() <= '9')
    question.label = text->front() - '0';
  else
    wrong("the label is {}, not the number of a choice", label->dump());
  return question;
}

std::vector<Question> read_json_lines(const std::string& path,
                                      const QuestionRequirements& requirements) {
  std::vector<Question> questions;
  const auto take = [&](int, std::string_view line) -> std::string {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      return "";
    try {
      questions.push_back(from_json(line, requirements));
      expect_usable(questions.back(), requirements);
      return "";
    } catch (const Wrong& problem) {
      return "the line: " + problem.text;
    }
  };
  text::each_line({path, files::read_whole(path)}, take);
  return questions;
}

/// The example of number `index` that begins at byte `at`, which moves to its end.
Question from_numbers(const std::string& bytes,
                      std::size_t& at,
                      std::int64_t index,
                      const text::Tokenizer* tokenizer) {
  std::size_t next = at, end = bytes.size();
  const auto number = [&] {
    std::uint16_t value = 0;
    if (next + sizeof value > end)
      wrong("ends in the middle");
    std::memcpy(&value, bytes.data() + next, sizeof value);  // little-endian
    next += sizeof value;
    return value;
  };
  const auto tokens = [&] {
    Tokens all(number());
    for (std::int32_t& token : all) token = number();
    return all;
  };
  const std::uint16_t first = number(), size = number();
  if (first != start)
    wrong("does not begin with {}", start);
  if (size < 5 * number_bytes || size % number_bytes != 0 || at + size > bytes.size())
    wrong("states a size of {} bytes", size);
  end = at + size;
  const std::uint16_t stated = number();
  Question question;
  question.label = number();
  question.choices.resize(number());
  question.context = tokens();
  for (Tokens& choice : question.choices) {
    choice = tokens();
    std::string text;
    for (const std::int32_t& token : choice)
      if (tokenizer != nullptr && token < tokenizer->vocabulary())
        tokenizer->decode({&token, 1}, text);
    if (tokenizer != nullptr)
      question.lengths.push_back(length_of(text));
  }
  if (next < end)
    wrong("has {} bytes after its choices", end - next);
  if (stated != index)
    wrong("has the index {}", stated);
  if (question.context.empty() && tokenizer != nullptr && tokenizer->end_of_text())
    question.context.push_back(*tokenizer->end_of_text());
  at = end;
  return question;
}

std::vector<Question> read_hellaswag(const std::string& path,
                                     const QuestionRequirements& requirements) {
  const std::string bytes = files::read_whole(path);
  std::array<std::int32_t, 4> header{};
  if (bytes.size() < choice_header_bytes)
    throw UserError(Place{path},
                    fmt::format("{} bytes are not an evaluation file of llm.c: its header "
                                "alone has {}",
                                bytes.size(), choice_header_bytes));
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[0] != choice_magic || header[1] != choice_version)
    throw UserError(Place{path},
                    fmt::format("magic {} and version {} are not those of llm.c's evaluation "
                                "files, {} and {}",
                                header[0], header[1], choice_magic, choice_version));
  Findings findings;
  std::vector<Question> questions;
  std::size_t at = choice_header_bytes;
  for (std::int64_t i = 0; i < header[2]; ++i) {
    const std::size_t begin = at;
    try {
      questions.push_back(from_numbers(bytes, at, i, requirements.tokenizer));
      expect_usable(questions.back(), requirements);
    } catch (const Wrong& problem) {
      findings.add({path}, "", fmt::format("example {}, at byte {}: {}", i, begin, problem.text));
      if (at == begin)
        break;  // it is not known where the next one begins
    }
  }
  findings.settle();
  if (at != bytes.size())
    throw UserError(Place{path}, fmt::format("{} bytes follow the {} examples of the header",
                                             bytes.size() - at, header[2]));
  return questions;
}

}  // namespace

std::vector<Question> read_questions(const std::string& path,
                                     const QuestionRequirements& requirements) {
  TRIREME_EXPECT(requirements.format != ChoiceFormat::jsonl || requirements.tokenizer != nullptr,
                 "questions as text, and no tokenizer");
  const std::string file = tokens::find_file(path, "--multiple-choice");
  std::vector<Question> questions = requirements.format == ChoiceFormat::hellaswag
                                        ? read_hellaswag(file, requirements)
                                        : read_json_lines(file, requirements);
  if (questions.empty())
    throw UserError(Place{file}, "the file contains no questions");
  return questions;
}

}  // namespace trireme::batches
