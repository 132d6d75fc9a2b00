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
    {.help = "Names the set in the log and its group of /evaluation in run.h5: letters, digits and "
             ". _ -, a letter or digit first.",
     .required = true});
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Evaluate every so many steps, before the first and after the last.",
     .min = 1,
     .required = true});
  v("text", c.text, {.help = "The loss on text: files, directories and globs."});
  v("tokens", c.tokens, {.help = "The loss on token files: llm.c's and Megatron's."});
  v("field", c.field, {.help = "Of text: JSON lines, a document each, under this key."});
  v("multiple_choice", c.multiple_choice,
    {.help = "The answers to questions with choices, in this file."});
  v("format", c.format,
    {.help =
         "Of that file: llm.c's evaluation files, or JSON lines with context, choices, label."});
}

template <class V>
void describe(V& v, NoiseScaleConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Measure the gradient noise scale every so many steps, from the gradients of the "
             "leaves that parallel.reduction: tree adds up, two of them or more. A batch far below "
             "it could be larger at little cost in tokens; one far above it wastes tokens. 0: "
             "never.",
     .min = 0});
  v("smoothing", c.smoothing,
    {.help = "Weight of earlier measurements in the moving averages of noise and gradient, "
             "whose quotient it is; the first measurements count equally.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
}

template <class V>
void describe(V& v, EvaluateConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Validation loss every so many steps, before the first and after the last. 0: never.",
     .min = 0});
  v("batches", c.batches,
    {.unit = "batches",
     .help = "Global batches per evaluation, the same ones every time; fewer when the validation "
             "data ends.",
     .min = 1});
  v.list("sets", c.sets,
         {.help = "Other sets to evaluate on, as in [{name: hellaswag, multiple_choice: val.bin, "
                  "every_steps: 500}, {name: code, text: [a.cpp], every_steps: 500}]: each has one "
                  "of text, tokens and multiple_choice."});
  v.section("noise_scale", c.noise_scale);
}

}  // namespace trireme::session
