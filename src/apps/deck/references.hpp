// SPDX-License-Identifier: Apache-2.0
// References in the values of decks and overrides: ${NAME} is an environment variable, {array} the
// index of this task in a job array, and {job} the number of the scheduler's job. `$${NAME}`,
// `{{array}}` and `{{job}}` stand for the text itself.
//
// 1. The YAML parser sees a word of the same length in place of a reference, so that braces need no
//    quotes and places stay right. The value is put into the tree, so that nothing in it is YAML.
// 2. One rank reads the values for all, whose environments may differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deck/yaml.hpp"

namespace trireme::deck {

/// Values by reference ("${NAME}"). One that is unset or empty is missing.
using References = std::map<std::string, std::string>;

/// The values of all references in a deck and overrides, from the environment of this process.
References references_in(const std::string& deck, const std::vector<std::string>& overrides);

/// `text` with words in place of its references, as parse_yaml() needs it.
std::string masked(const std::string& text);

/// A value as it is written in a deck: its parts that look like references stand for themselves.
std::string escaped(const std::string& value);

/// The text of a word that yaml_text() wrote, without its quotes; a list or map as it is.
std::string plain_text(const std::string& yaml);

/// Puts the values into the tree. A missing value is a finding, and its word becomes broken.
void put_values(Node& node,
                const std::string& path,
                const References& values,
                std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
