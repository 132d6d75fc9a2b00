// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

/// Nothing when it is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0)
    return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 4; ++i) {
      const std::size_t value = i >= text.size() - padding ? 0 : alphabet.find(text[i]);
      if (value == std::string_view::npos)
        return std::nullopt;
      bits = bits << 6U | static_cast<std::uint32_t>(value);
    }
    for (const unsigned shift : {16U, 8U, 0U})
      bytes.push_back(static_cast<char>(bits >> shift & 0xFFU));
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

struct RankLine {
  std::int64_t rank;
  int line;
  std::string bytes;
};

/// Returns what is wrong, or "".
std::string read_rank_line(std::string_view line, RankLine& out) {
  const std::size_t space = line.find(' ');
  auto bytes = from_base64(line.substr(0, space));
  if (space == std::string_view::npos || !bytes)
    return "a line is the base64 of a token's bytes, a space, and its rank";
  out.bytes = std::move(*bytes);
  const std::string_view digits = line.substr(space + 1);
  const auto [end, problem] =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.rank);
  if (problem != std::errc() || end != digits.data() + digits.size() || out.rank < 0)
    return "the rank is not an integer from 0 on";
  return "";
}

/// A file of ranks without a companion is one of these.
std::optional<Companion> known_ranks(std::size_t ranks) {
  if (ranks == 50256 || ranks == 50280)
    return Companion{Pattern::gpt2, {{"<|endoftext|>", 50256}}};
  if (ranks == 100256)
    return Companion{Pattern::cl100k,
                     {{"<|endoftext|>", 100257},
                      {"<|fim_prefix|>", 100258},
                      {"<|fim_middle|>", 100259},
                      {"<|fim_suffix|>", 100260},
                      {"<|endofprompt|>", 100276}}};
  if (ranks == 151643)
    return Companion{Pattern::qwen2,
                     {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}},
                     true};
  if (ranks == 199998)
    return Companion{Pattern::o200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
  if (ranks != 128000)
    return std::nullopt;
  Companion llama{Pattern::llama3, {}};
  for (std::int64_t i = 0, reserved = 0; i < 256; ++i) {
    const char* name = i == 0   ? "<|begin_of_text|>"
                       : i == 1 ? "<|end_of_text|>"
                       : i == 6 ? "<|start_header_id|>"
                       : i == 7 ? "<|end_header_id|>"
                       : i == 9 ? "<|eot_id|>"
                                : nullptr;
    llama.special_tokens.emplace_back(
        name != nullptr ? name : fmt::format("<|reserved_special_token_{}|>", reserved++),
        128000 + i);
  }
  return llama;
}

void put_special(Vocabulary& vocabulary, const std::string& path, const Companion& companion) {
  auto tokens = companion.special_tokens;
  std::ranges::sort(tokens, {}, &std::pair<std::string, std::int64_t>::second);
  for (const auto& [name, id] : tokens)
    if (const std::string problem = put_token(vocabulary, id, {name, true}); !problem.empty())
      throw UserError({path}, fmt::format("special token '{}': {}", shortened(name), problem));
  vocabulary.end_of_text = find_end_of_text(vocabulary);
}

constexpr std::size_t header_words = 256, header_bytes = 4 * header_words;
constexpr std::int32_t llmc_magic = 20240328;

/// Appends the tokens that the bytes after the header hold.
void read_llmc_tokens(const FileText& file, std::int64_t count, Token end, Vocabulary& vocabulary) {
  std::size_t at = header_bytes;
  for (std::int64_t id = 0; id < count; ++id) {
    const std::size_t length =
        at < file.bytes.size() ? static_cast<unsigned char>(file.bytes[at]) : std::size_t{1};
    if (at + 1 + length > file.bytes.size())
      throw UserError(
          {file.path},
          fmt::format("it ends at byte {}, within token {} of {}: the file was truncated",
                      file.bytes.size(), id, count));
    if (length == 0)
      vocabulary.tokens.emplace_back();
    else
      vocabulary.tokens.push_back({std::string(file.bytes.substr(at + 1, length)), id == end});
    at += 1 + length;
  }
  if (at != file.bytes.size())
    throw UserError({file.path}, fmt::format("its {} tokens end at byte {}, and {} bytes follow",
                                             count, at, file.bytes.size() - at));
}

}  // namespace

Companion read_companion(const FileText& file) {
  const Json root = parse_json(file);
  expect_keys(file.path, "", root, {"pattern", "special_tokens"});
  const Json& pattern = member(root, "pattern");
  const auto known = pattern.is_string()
                         ? value_named<Pattern>(pattern.get_ref<const std::string&>())
                         : std::nullopt;
  if (!known)
    refuse_key(file.path, "pattern", fmt::format("it must be one of {}", pattern_names()));
  Companion companion{*known, {}};
  const Json& tokens = member(root, "special_tokens");
  if (!tokens.is_null() && !tokens.is_object())
    refuse_key(file.path, "special_tokens", "expected an object {\"name\": id, ...}");
  for (const auto& [name, id] : tokens.items()) {
    if (!id.is_number_integer())
      refuse_key(file.path, "special_tokens." + shortened(name), "the id is not an integer");
    companion.special_tokens.emplace_back(name, id.get<std::int64_t>());
  }
  return companion;
}

Vocabulary read_tiktoken(const FileText& file, const std::optional<Companion>& companion) {
  std::vector<RankLine> lines;
  each_line(file, [&](int number, std::string_view line) {
    lines.push_back({0, number, ""});
    return read_rank_line(line, lines.back());
  });
  std::ranges::stable_sort(lines, {}, &RankLine::rank);
  Vocabulary vocabulary;
  vocabulary.rule = MergeRule::ranked;
  for (RankLine& line : lines)
    if (const std::string problem =
            put_token(vocabulary, line.rank, {std::move(line.bytes), false});
        !problem.empty())
      throw UserError({file.path, line.line, 1}, problem);
  const auto rest_of = companion ? companion : known_ranks(lines.size());
  if (!rest_of)
    throw UserError(
        {file.path},
        fmt::format("{} ranks match no known vocabulary (50256, 50280, "
                    "100256, 128000, 151643, 199998): write a file {}.json, "
                    R"({{"pattern": "gpt2", "special_tokens": {{"<|endoftext|>": {}}}}})"
                    ", with the pattern it was made for: {}",
                    lines.size(), file.path, vocabulary.tokens.size(), pattern_names()));
  vocabulary.pattern = rest_of->pattern;
  vocabulary.nfc = rest_of->nfc;
  put_special(vocabulary, file.path, *rest_of);
  return vocabulary;
}

Vocabulary read_llmc_tokenizer(const FileText& file, const std::optional<Companion>& companion) {
  if (file.bytes.size() < header_bytes)
    throw UserError({file.path}, fmt::format("{} bytes; the header of a tokenizer file of llm.c "
                                             "alone has {}",
                                             file.bytes.size(), header_bytes));
  std::array<std::int32_t, header_words> header;
  std::memcpy(header.data(), file.bytes.data(), header_bytes);
  if (header[0] != llmc_magic || (header[1] != 1 && header[1] != 2))
    throw UserError({file.path},
                    fmt::format("at byte 0: magic number {} and version {}; a tokenizer file of "
                                "llm.c has {} and 1 or 2",
                                header[0], header[1], llmc_magic));
  const std::int64_t count = header[2];
  const Token end = header[1] == 1 ? 50256 : header[3];
  if (count < 1 || count > std::int64_t{1} << 24U || end < 0 || end >= count)
    throw UserError({file.path},
                    fmt::format("at byte 8: {} tokens, and {} ends a text", count, end));
  if (!companion && count != 50257)
    throw UserError({file.path},
                    fmt::format("{} tokens are not GPT-2's 50257, and the file names no pattern: "
                                R"(write a file {}.json, {{"pattern": "..."}}, with one of {})",
                                count, file.path, pattern_names()));
  Vocabulary vocabulary;
  vocabulary.rule = MergeRule::ranked;
  vocabulary.pattern = companion ? companion->pattern : Pattern::gpt2;
  read_llmc_tokens(file, count, end, vocabulary);
  if (companion)
    put_special(vocabulary, file.path, *companion);
  vocabulary.end_of_text = end;
  return vocabulary;
}

}  // namespace trireme::text
