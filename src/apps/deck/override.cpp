// SPDX-License-Identifier: Apache-2.0
#include "deck/override.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

#include "deck/deck.hpp"
#include "deck/references.hpp"

namespace trireme::deck {
namespace {

bool is_path(const std::string& text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !text.empty() && text.front() != '.' && text.back() != '.' &&
         text.find("..") == std::string::npos && std::ranges::all_of(text, fits);
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool from_command_line(const Node& node) {
  return node.key_place.file == command_line;
}

/// Puts `value` with its key into `map`. It replaces a value of the deck; a value of an earlier
/// override becomes a duplicate, which the reader reports.
void lay_over(Node& map, Node value) {
  Node* old = child_of(map, value.key);
  if (old == nullptr) {
    map.children.push_back(std::move(value));
  } else if (old->kind == Node::Kind::map && value.kind == Node::Kind::map) {
    for (Node& inner : value.children) lay_over(*old, std::move(inner));
  } else if (from_command_line(*old)) {
    map.children.push_back(std::move(value));
  } else {
    *old = std::move(value);
  }
}

}  // namespace

void apply_override(Node& root,
                    const std::string& text,
                    int number,
                    std::vector<Diagnostic>& findings) {
  const auto place = [&](std::size_t offset) {
    return Place{command_line, number, static_cast<int>(offset) + 1};
  };
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || !is_path(path)) {
    findings.push_back(
        {place(0), "", fmt::format("'{}' is not an override. Write section.key=value.", text)});
    return;
  }
  if (text.find_first_of("\n\r") != std::string::npos) {
    findings.push_back(
        {place(0), path,
         "an override must not contain a line break. Write a value of several lines in the deck."});
    return;
  }
  const std::size_t found_before = findings.size();
  const std::string yaml = masked(text.substr(equals + 1));
  Node value = parse_yaml(yaml, {command_line, number, static_cast<int>(equals) + 2}, findings);
  if (findings.size() > found_before)
    return;
  const std::string raw = trimmed(text.substr(equals + 1));
  if ((value.kind == Node::Kind::null && !raw.empty() && raw.front() == '#') ||
      (value.kind == Node::Kind::word && !value.quoted && value.word != trimmed(yaml))) {
    findings.push_back(
        {place(equals + 1), path,
         fmt::format("'{}' is not a single YAML word{}. Quote the value.", raw,
                     raw.find('#') == std::string::npos ? "" : " (# begins a comment)")});
    return;
  }
  if (value.kind == Node::Kind::null)
    value.place = place(equals + 1);

  // Wraps the value in maps, from the innermost key outwards.
  std::size_t end = path.size();
  for (std::size_t dot = path.rfind('.');; dot = path.rfind('.', end - 1)) {
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    value.key = path.substr(begin, end - begin);
    value.key_place = place(begin);
    if (dot == std::string::npos)
      break;
    Node around;
    around.kind = Node::Kind::map;
    around.place = place(0);
    around.children.push_back(std::move(value));
    value = std::move(around);
    end = dot;
  }
  lay_over(root, std::move(value));
}

}  // namespace trireme::deck
