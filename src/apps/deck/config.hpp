// SPDX-License-Identifier: Apache-2.0
// The whole deck as one struct: the rooms' own config structs, one per section. Everything that
// needs all keys walks describe(JobConfig): the reader, the echo, the help and the attributes.
//
// To add a key: one member with its default and one line of describe() in its room's config.hpp.
// The tests of tests/deck then check that it is read, echoed and explained.
#pragma once

#include <map>
#include <string>

#include "model/config.hpp"

#include "text/tokenizer.hpp"

#include "session/sections.hpp"

namespace trireme::deck {

struct JobConfig : trireme::session::Sections {
  trireme::model::ModelConfig model;
};

template <class V>
void describe(V& v, JobConfig& c) {
  v.section("run", c.run);
  v.section("gpu", c.gpu);
  v.section("model", c.model);
  v.section("data", c.data);
  v.section("batch", c.batch);
  v.section("optimizer", c.optimizer);
  v.section("parallel", c.parallel);
  v.section("memory", c.memory);
  v.section("record", c.record);
  v.section("checkpoint", c.checkpoint);
  v.section("evaluate", c.evaluate);
  v.section("sample", c.sample);
}

/// Equal in every key.
bool operator==(const JobConfig& a, const JobConfig& b);

/// The model, with the tokenizer's end-of-text token where documents are masked. Its sizes: as
/// given, else from the preset; the vocabulary, if neither has it, from the tokenizer: of text and
/// synthetic data any, of token files one that is not `bytes`, which is the default of a
/// deck. Sizes that nothing fills stay 0 (check() reports them). `tokenizer`: null where it
/// could not be read.
trireme::model::GptShape shape_of(const JobConfig& config,
                                  const trireme::text::Tokenizer* tokenizer);

/// The keys of section `model` that a preset, the family or the tokenizer fill in, as the deck
/// would have them: what a run that resumes compares, in whatever form its deck has it.
std::map<std::string, std::string> resolved_model(const trireme::model::GptShape& shape);

/// Section `model` of a deck for such a model, on one line.
std::string model_section(const trireme::model::GptShape& shape);

/// Whether some of the training data are token files.
bool has_token_files(const trireme::batches::DataConfig& data);

}  // namespace trireme::deck
