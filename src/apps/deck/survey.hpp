// SPDX-License-Identifier: Apache-2.0
// Lists every key of a JobConfig as plain data, in the order of describe(): for echo, help and job.
#pragma once

#include <string>
#include <vector>

#include "base/key.hpp"

#include "session/job.hpp"

#include "deck/config.hpp"
#include "deck/deck.hpp"
#include "deck/value.hpp"

namespace trireme::deck {

struct Entry {
  std::string path;   ///< "optimizer.schedule.kind"
  std::string type;   ///< "integer", "auto | cpu | cuda"
  std::string unit;   ///< may be empty
  std::string range;  ///< "[0, 1)", may be empty
  std::string help;
  bool required = false;
  Change change = Change::free;
  std::string text;          ///< the value as YAML
  std::string record_text;   ///< the value as YAML in the record of a run
  std::vector<Entry> items;  ///< of a list of maps: the keys of an item
};

std::vector<Entry> survey(const JobConfig& config);

/// deck.resolved.yaml: every key with its value and its place. parse() of it gives an equal config.
std::string echo(const Deck& deck);

/// The reference of all keys, of a section, or of one key. Throws UserError if it is unknown.
std::string help(const std::string& section_or_key = "");

/// The job of a run from a checked deck, but for Job::build, the versions of the program.
session::Job job_of(const Deck& deck);

}  // namespace trireme::deck
