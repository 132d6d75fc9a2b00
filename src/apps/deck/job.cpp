// SPDX-License-Identifier: Apache-2.0
#include "deck/job.hpp"

#include <map>
#include <string>
#include <variant>

#include "deck/survey.hpp"

namespace trireme::deck {
namespace {

std::string as_text(const Value& value) {
  return std::visit([](const auto& v) { return yaml_text(v); }, value);
}

}  // namespace

session::Job job_of(const Deck& deck) {
  const model::GptShape shape = deck.shape();
  const session::Sections& sections = deck.config;
  session::Job job{sections};
  job.shape = shape;
  job.resolved_deck = echo(deck);
  job.tokenizer = deck.tokenizer_of_data();
  const std::map<std::string, std::string> resolved = resolved_model(shape);
  for (const Entry& entry : survey(deck.config)) {
    const auto known = resolved.find(entry.path);  // values from a preset or the tokenizer
    job.deck.emplace_back(entry.path,
                          known == resolved.end() ? as_text(entry.value) : known->second);
    job.rules.push_back(entry.change);
    job.places.push_back(deck.places.of(entry.path));
  }
  return job;
}

}  // namespace trireme::deck
