// SPDX-License-Identifier: Apache-2.0
#include "deck/references.hpp"

#include <cstdlib>
#include <regex>

#include <fmt/format.h>

#include "session/scheduler.hpp"

namespace trireme::deck {
namespace {

/// Characters that stand for "$", "{" and "}" in a word.
constexpr std::string_view marks = "\x01\x02\x03", meant = "${}";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (char& one : text)
    if (const auto at = from.find(one); at != std::string_view::npos)
      one = to[at];
  return text;
}

const std::regex& written() {
  static const std::regex pattern(
      R"(\$?\$\{[A-Za-z_]\w{0,99}\}|\{\{(array|job)\}\}|\{(array|job)\})");
  return pattern;
}
const std::regex& marked() {
  static const std::regex pattern(
      "\x01?\x01\x02[A-Za-z_]\\w{0,99}\x03|\x02\x02(array|job)\x03\x03|\x02(array|job)\x03");
  return pattern;
}

/// `text` with `change(reference)` in place of each reference.
template <class Change>
std::string with_each(const std::regex& reference, const std::string& text, const Change& change) {
  std::string result;
  auto rest = text.begin();
  for (std::sregex_iterator one(text.begin(), text.end(), reference), end; one != end; ++one) {
    result.append(rest, (*one)[0].first);
    result += change(one->str());
    rest = (*one)[0].second;
  }
  return result.append(rest, text.end());
}

std::string why_unset(const std::string& reference) {
  if (reference == "{array}")
    return "{array} is unknown, because this is not a task of a job array (SLURM_ARRAY_TASK_ID, "
           "PBS_ARRAY_INDEX, LSB_JOBINDEX, JOB_COMPLETION_INDEX)";
  if (reference == "{job}")
    return "{job} is unknown, because this is not a job of Slurm, PBS, LSF or Flux";
  return "the environment variable of " + reference + " is not set or empty. Set and export it";
}

}  // namespace

References references_in(const std::string& deck, const std::vector<std::string>& overrides) {
  References found;
  const session::SchedulerJob job = session::scheduler_job();
  const auto look = [&](const std::string& reference) {
    const std::string name = reference.substr(2, reference.size() - 3);
    const char* const value = reference == "{array}" ? job.index.c_str()
                              : reference == "{job}"
                                  ? job.number.c_str()
                                  : std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr && *value != '\0')
      found[reference] = value;
    return "";
  };
  with_each(written(), deck, look);
  for (const std::string& text : overrides) with_each(written(), text, look);
  return found;
}

std::string masked(const std::string& text) {
  return with_each(written(), text,
                   [](const std::string& found) { return replaced(found, meant, marks); });
}

std::string escaped(const std::string& value) {
  return with_each(written(), value, [](const std::string& found) {
    return found.front() == '$' ? "$" + found : "{" + found + "}";
  });
}

void put_values(Node& node,
                const std::string& path,
                const References& values,
                std::vector<Diagnostic>& findings) {
  const auto unmasked = [](const std::string& found) { return replaced(found, marks, meant); };
  node.key = with_each(marked(), node.key, unmasked);
  for (Node& child : node.children)
    put_values(child, child.key.empty() || path.empty() ? path + child.key : path + "." + child.key,
               values, findings);
  node.word = with_each(marked(), node.word, [&](const std::string& masked_one) {
    const std::string found = unmasked(masked_one);
    if (found.starts_with("$$"))
      return found.substr(1);
    if (found.starts_with("{{"))
      return found.substr(1, found.size() - 2);
    if (const auto value = values.find(found); value != values.end())
      return value->second;
    findings.push_back(
        {node.place, path,
         fmt::format("{}. For the text itself, write {}.", why_unset(found), escaped(found))});
    node.kind = Node::Kind::broken;
    return found;
  });
}

std::string plain_text(const std::string& yaml) {
  std::vector<Diagnostic> findings;
  Node node = parse_yaml(masked(yaml), {}, findings);
  put_values(node, "", {}, findings);
  return findings.empty() && node.kind == Node::Kind::word ? node.word : yaml;
}

}  // namespace trireme::deck
