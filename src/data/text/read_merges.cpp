// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t most_findings = 20;

using Ids = std::unordered_map<std::string, Token>;

bool looks_special(std::string_view name) {
  return name.size() > 2 && name.front() == '<' && name.back() == '>';
}

/// Tokens by id as vocab.json spells them; the same in `ids`.
std::vector<std::string> read_vocab(const FileText& file, Ids& ids) {
  const Json root = parse_json(file.path, file.bytes);
  if (!root.is_object())
    throw UserError({file.path}, "expected an object {\"token\": id, ...}");
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const auto& [name, id] : root.items()) {
    if (!id.is_number_integer())
      refuse_key(file.path, shortened(name), "the id is not an integer");
    found.emplace_back(id.get<std::int64_t>(), name);
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  Vocabulary checked;  // for put_token's rules
  for (auto& [id, name] : found) {
    if (const std::string problem = put_token(checked, id, {name, false}); !problem.empty())
      refuse_key(file.path, shortened(name), problem);
    names.resize(static_cast<std::size_t>(id) + 1);
    names.back() = name;
    ids.emplace(std::move(name), static_cast<Token>(id));
  }
  return names;
}

class MergeLines {
 public:
  MergeLines(const FileText& file, const Ids& ids) : file_(file), ids_(ids) {}

  /// The merges; `made` marks the tokens that are made by one.
  std::vector<MergePair> read(std::vector<bool>& made) {
    std::vector<MergePair> merges;
    std::string_view rest = file_.bytes;
    for (line_ = 1; !rest.empty() && findings_.size() < most_findings; ++line_) {
      const std::size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (line.ends_with('\r'))
        line.remove_suffix(1);
      if (line_ == 1 && line.starts_with("#version"))
        continue;
      if (const auto merge = read_line(line, made))
        merges.push_back(*merge);
    }
    if (!findings_.empty())
      throw UserError(std::move(findings_));
    return merges;
  }

 private:
  std::optional<MergePair> fail(std::string text) {
    findings_.push_back({{file_.path, line_, 1}, "", std::move(text)});
    return std::nullopt;
  }
  std::optional<MergePair> read_line(std::string_view line, std::vector<bool>& made) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      return fail("a merge is two tokens with one space between them");
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    const auto l = ids_.find(left), r = ids_.find(right), result = ids_.find(left + right);
    for (const auto& [name, at] : {std::pair{left, l}, {right, r}, {left + right, result}})
      if (at == ids_.end())
        return fail(
            fmt::format("'{}' is not in the vocabulary next to this file", shortened(name)));
    made[static_cast<std::size_t>(result->second)] = true;
    const MergePair merge{l->second, r->second};
    const auto [first, fresh] =
        lines_.emplace(std::uint64_t{static_cast<std::uint32_t>(merge.first)} << 32U |
                           static_cast<std::uint32_t>(merge.second),
                       line_);
    if (!fresh)
      return fail(fmt::format("the same merge as in line {}", first->second));
    return merge;
  }

  const FileText& file_;
  const Ids& ids_;
  int line_ = 0;
  std::unordered_map<std::uint64_t, int> lines_;
  std::vector<Diagnostic> findings_;
};

}  // namespace

Vocabulary read_vocab_and_merges(const FileText& vocab, const FileText& merges) {
  Vocabulary vocabulary;
  Ids ids;
  const std::vector<std::string> names = read_vocab(vocab, ids);
  std::vector<bool> made(names.size(), false);
  vocabulary.merges = MergeLines(merges, ids).read(made);
  std::vector<Diagnostic> findings;
  for (std::size_t id = 0; id < names.size() && findings.size() < most_findings; ++id) {
    const std::string& name = names[id];
    const auto bytes = from_alphabet(name);
    const bool special = !made[id] && looks_special(name);
    if (!bytes && !special)
      findings.push_back({{vocab.path},
                          shortened(name),
                          "this is not in the alphabet of byte-level vocabularies"});
    else if (!special && !made[id] && bytes->size() > 1)
      findings.push_back({{merges.path},
                          "",
                          fmt::format("no line makes token {}, '{}', of {}: a line is missing", id,
                                      shortened(name), vocab.path)});
    vocabulary.tokens.push_back({special ? name : bytes.value_or(""), special});
  }
  if (!findings.empty())
    throw UserError(std::move(findings));
  vocabulary.end_of_text = find_end_of_text(vocabulary);
  return vocabulary;
}

}  // namespace trireme::text
