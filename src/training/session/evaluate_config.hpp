// SPDX-License-Identifier: Apache-2.0
// The deck's section `evaluate`: validation, other sets, and the gradient noise scale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/key.hpp"

#include "batches/multiple_choice.hpp"

namespace trireme::session {

/// Another set on which the model is evaluated during training.
struct EvaluationSet {
  std::string name;
  std::int64_t every_steps = 0;
  std::vector<std::string> text, tokens;
  std::string field;
  std::string multiple_choice;
  batches::ChoiceFormat format = batches::ChoiceFormat::hellaswag;

  /// Whether a tokenizer is needed to read it.
  [[nodiscard]] bool is_text() const {
    return !text.empty() || (!multiple_choice.empty() && format == batches::ChoiceFormat::jsonl);
  }
};

/// The gradient noise scale (noise_scale.hpp).
struct NoiseScaleConfig {
  std::int64_t every_steps = 0;
  double smoothing = 0.95;
};

struct EvaluateConfig {
  std::int64_t every_steps = 0;
  std::int64_t batches = 20;
  std::vector<EvaluationSet> sets = {};
  NoiseScaleConfig noise_scale = {};
};

template <class V>
void describe(V& v, EvaluationSet& c) {
  v("name", c.name,
    {.help = "Name of the set in the log and in /evaluation of run.h5: letters, digits and . _ -, "
             "starting with a letter or digit.",
     .required = true});
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Evaluate every N steps, and before the first and after the last step.",
     .min = 1,
     .required = true});
  v("text", c.text, {.help = "Evaluate the loss on text: files, directories and globs."});
  v("tokens", c.tokens, {.help = "Evaluate the loss on token files of llm.c or Megatron."});
  v("field", c.field,
    {.help =
         "Read text as JSON lines: each line is a document, under this key. Empty: plain text."});
  v("multiple_choice", c.multiple_choice,
    {.help = "Evaluate the answers to the multiple-choice questions in this file."});
  v("format", c.format,
    {.help =
         "Format of the file of multiple_choice: an evaluation file of llm.c, or JSON lines with "
         "context, choices and label."});
}

template <class V>
void describe(V& v, NoiseScaleConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help =
         "Measure the gradient noise scale every N steps. Needs parallel.reduction: tree with two "
         "or more logical_shards. A batch far below the noise scale could be larger at little "
         "cost in tokens; one far above it wastes tokens. 0: never.",
     .min = 0});
  v("smoothing", c.smoothing,
    {.help =
         "Weight of earlier measurements in the moving averages of noise and gradient. The noise "
         "scale is the ratio of the two averages.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
}

template <class V>
void describe(V& v, EvaluateConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Compute the validation loss every N steps, and before the first and after the last "
             "step. 0: never.",
     .min = 0});
  v("batches", c.batches,
    {.unit = "batches",
     .help =
         "Number of global batches per evaluation, the same every time; fewer if the validation "
         "data is smaller.",
     .min = 1});
  v.list("sets", c.sets,
         {.help = "Additional evaluation sets, each with one of text, tokens and multiple_choice. "
                  "Example: [{name: hellaswag, multiple_choice: val.bin, every_steps: 500}, {name: "
                  "code, text: [a.cpp], every_steps: 500}]."});
  v.section("noise_scale", c.noise_scale);
}

}  // namespace trireme::session
