// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

using Ids = std::unordered_map<std::string, Token>;

bool looks_special(std::string_view name) {
  return name.size() > 2 && name.front() == '<' && name.back() == '>';
}

/// Tokens as vocab.json spells them; the same in `ids`.
std::vector<VocabularyEntry> read_vocab(const FileText& file, Ids& ids) {
  const Json root = parse_json(file);
  if (!root.is_object())
    throw UserError({file.path}, "expected an object {\"token\": id, ...}");
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const auto& [name, id] : root.items()) {
    if (!id.is_number_integer())
      refuse_key(file.path, shortened(name), "the id is not an integer");
    found.emplace_back(id.get<std::int64_t>(), name);
  }
  std::ranges::sort(found);
  Vocabulary spelled;
  for (auto& [id, name] : found) {
    if (const std::string problem = put_token(spelled, id, {name}); !problem.empty())
      refuse_key(file.path, shortened(name), problem);
    ids.emplace(std::move(name), static_cast<Token>(id));
  }
  return std::move(spelled.tokens);
}

/// The merges; `made` marks the tokens that are made by one.
std::vector<MergePair> read_merges_txt(const FileText& file,
                                       const Ids& ids,
                                       std::vector<bool>& made) {
  std::vector<MergePair> merges;
  std::map<MergePair, int> lines;
  each_line(file, [&](int number, std::string_view line) -> std::string {
    if (number == 1 && line.starts_with("#version"))
      return "";
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      return "a merge is two tokens with one space between them";
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    std::array<Token, 3> tokens{};
    for (auto* to = tokens.data(); const std::string& name : {left, right, left + right})
      if (const auto at = ids.find(name); at != ids.end())
        *to++ = at->second;
      else
        return fmt::format("'{}' is not in the vocabulary next to this file", shortened(name));
    made[static_cast<std::size_t>(tokens[2])] = true;
    const auto [first, fresh] = lines.emplace(MergePair{tokens[0], tokens[1]}, number);
    if (!fresh)
      return fmt::format("the same merge as in line {}", first->second);
    merges.push_back(first->first);
    return "";
  });
  return merges;
}

}  // namespace

Vocabulary read_vocab_and_merges(const FileText& vocab, const FileText& merges) {
  Vocabulary vocabulary;
  Ids ids;
  vocabulary.tokens = read_vocab(vocab, ids);
  std::vector<bool> made(vocabulary.tokens.size(), false);
  vocabulary.merges = read_merges_txt(merges, ids, made);
  Findings findings;
  for (std::size_t id = 0; id < made.size(); ++id) {
    const std::string name = std::move(vocabulary.tokens[id].bytes);
    const auto bytes = from_alphabet(name);
    const bool special = !made[id] && looks_special(name);
    if (!bytes && !special)
      findings.add({vocab.path}, shortened(name),
                   "this is not in the alphabet of byte-level vocabularies");
    else if (!special && !made[id] && bytes->size() > 1)
      findings.add({merges.path}, "",
                   fmt::format("no line makes token {}, '{}', of {}: a line is missing", id,
                               shortened(name), vocab.path));
    vocabulary.tokens[id] = {special ? name : bytes.value_or(""), special};
  }
  findings.settle();
  vocabulary.end_of_text = find_end_of_text(vocabulary);
  return vocabulary;
}

}  // namespace trireme::text
