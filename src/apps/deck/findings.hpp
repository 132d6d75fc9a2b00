// SPDX-License-Identifier: Apache-2.0
// How the cross-checks of a deck say what is wrong: one line per key that has a part in it, at the
// key's place in the deck or on the command line.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// What one key has to do with a disagreement.
struct Side {
  std::string path;
  std::string text;
};

class Findings {
 public:
  /// Both outlive it; `all` gets the findings.
  Findings(const Places& places, std::vector<Diagnostic>& all) : places_(places), findings_(all) {}

  /// Whether all of these keys could be read, so that their values mean something.
  [[nodiscard]] bool readable(std::initializer_list<const char*> paths) const;
  void say(const std::string& path, std::string text);
  /// One line at each side that was given; at the first one's section when none was.
  void disagree(std::vector<Side> sides);

 protected:
  const Places& places_;

 private:
  std::vector<Diagnostic>& findings_;
};

}  // namespace trireme::deck
