// SPDX-License-Identifier: Apache-2.0
// Reports findings of the cross-checks of a deck: one line per key involved, at the key's place in
// the deck or on the command line.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// The message for one of the keys in a conflict.
struct Side {
  std::string path;
  std::string text;
};

class Findings {
 public:
  /// Both must outlive the object; findings are appended to `all`.
  Findings(const KeyPlaces& places, std::vector<Diagnostic>& all)
      : places_(places), findings_(all) {}

  /// Whether all of these keys could be read.
  [[nodiscard]] bool readable(std::initializer_list<const char*> paths) const;
  void say(const std::string& path, std::string text);
  /// Adds a line for each key that was given, or for the first key's section if none was.
  void disagree(std::vector<Side> sides);

 protected:
  const KeyPlaces& places_;

 private:
  std::vector<Diagnostic>& findings_;
};

}  // namespace trireme::deck
