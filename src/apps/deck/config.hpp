// SPDX-License-Identifier: Apache-2.0
// The whole deck as one struct, with one config struct per section. Reader, echo and
// help visit all keys through describe(JobConfig).
//
// To add a key, add a member with its default and a line of describe() in its folder's config.hpp.
// The tests in tests/deck then check that it is read, echoed and explained.
#pragma once

#include <map>
#include <string>

#include "model/config.hpp"

#include "text/tokenizer.hpp"

#include "session/job.hpp"

namespace trireme::deck {

struct JobConfig : session::Sections {
  model::ModelConfig model;
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

/// The resolved model, with the tokenizer's end-of-text token if documents are masked. Sizes that
/// are not given come from the preset. The vocabulary may also come from the tokenizer, but not
/// from `bytes`, the default, if the data are token files. Other missing sizes are 0 (check()
/// reports them). `tokenizer` is null if it could not be read.
model::GptShape shape_of(const JobConfig& config, const text::Tokenizer* tokenizer);

/// The resolved values of the keys of section `model`, as a deck would state them. A resumed run
/// compares these, so its deck may use a preset or explicit values.
std::map<std::string, std::string> resolved_model(const model::GptShape& shape);

/// Section `model` of a deck for this model, on one line.
std::string model_section(const model::GptShape& shape);

bool has_token_files(const batches::DataConfig& data);
/// Whether no tokenizer is known for the training data, so that they have no text: token files or
/// synthetic data with more tokens than `bytes`, the default of data.tokenizer, has.
bool has_unknown_tokens(const batches::DataConfig& data, std::int64_t vocabulary);

}  // namespace trireme::deck
