// SPDX-License-Identifier: Apache-2.0
#include "weights/fit.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "text/json_file.hpp"

#include "weights/open.hpp"

namespace trireme::weights {
namespace {

constexpr const char* rows_key = "run.initial_rows";

class Comparison {
 public:
  Comparison(const StoredModel& stored, const ExpectedModel& expected)
      : stored_(stored), expected_(expected) {}

  std::vector<Diagnostic> run() {
    const model::GptShape &here = expected_.shape, &there = stored_.shape;
    number("model.layers", here.layers, there.layers);
    number("model.heads", here.heads, there.heads);
    number("model.channels", here.channels, there.channels);
    if (here.heads == there.heads && here.heads != 0 && here.channels == there.channels)
      number("model.head_channels", here.head_channels(), there.head_channels());
    option("model.norm", here.norm, there.norm);
    option("model.norm_gain", here.norm_gain, there.norm_gain);
    option("model.embedding_norm", here.embedding_norm, there.embedding_norm);
    real("model.norm_epsilon", here.norm_epsilon, there.norm_epsilon);
    option("model.qk_norm", here.qk_norm, there.qk_norm);
    option("model.activation", here.activation, there.activation);
    option("model.positions", here.positions, there.positions);
    if (here.heads == there.heads && here.heads != 0)
      number("model.key_value_heads", here.key_value_heads(), there.key_value_heads());
    if (here.channels == there.channels)
      number("model.mlp_channels", here.mlp_channels(), there.mlp_channels());
    if (here.positions == there.positions) {
      real("model.rotary_theta", here.rotary_theta, there.rotary_theta);
      scaling(here.rotary_scaling, there.rotary_scaling);
    }
    option("model.bias", here.bias, there.bias);
    option("model.tied_head", here.tied_head, there.tied_head);
    if (here.attention_window != there.attention_window)
      say("model.attention_window",
          fmt::format("{} here, but {} in {} (0: none)", here.attention_window,
                      there.attention_window, stored_.shape_file));
    else if (here.layers == there.layers && here.long_layers != there.long_layers)
      say("model.window_pattern",
          fmt::format("{} here, but {} in {}", model::pattern_of(here.long_layers, here.layers),
                      model::pattern_of(there.long_layers, there.layers), stored_.shape_file));
    real("model.logit_softcap", here.logit_softcap, there.logit_softcap);
    if (here.positions == model::Positions::learned)
      rows("model.context", "positions", here.context, there.context);
    rows("model.vocabulary", "tokens", here.vocabulary, there.vocabulary);
    tokens();
    return std::move(findings_);
  }

 private:
  void say(const char* key, std::string text) {
    findings_.push_back({expected_.place_of(key), key, std::move(text)});
  }

  void number(const char* key, std::int64_t here, std::int64_t there) {
    if (here != there && here != 0)
      say(key, fmt::format("{} here, but {} in {}", here, there, stored_.shape_file));
  }

  void option(const char* key, bool here, bool there) {
    if (here != there)
      say(key, fmt::format("{} here, but {} in {}", here, there, stored_.shape_file));
  }
  template <NamedEnum E>
  void option(const char* key, E here, E there) {
    if (here != there)
      say(key, fmt::format("{} here, but {} in {}", word(here), word(there), stored_.shape_file));
  }
  void real(const char* key, double here, double there) {
    if (here != there)
      say(key, fmt::format("{} here, but {} in {}", here, there, stored_.shape_file));
  }
  void scaling(const model::RotaryScaling& here, const model::RotaryScaling& there) {
    real("model.rotary_scaling.factor", here.factor, there.factor);
    if (!here.active() || !there.active())
      return;
    real("model.rotary_scaling.low_freq_factor", here.low_freq_factor, there.low_freq_factor);
    real("model.rotary_scaling.high_freq_factor", here.high_freq_factor, there.high_freq_factor);
    number("model.rotary_scaling.original_context", here.original_context, there.original_context);
  }

  void rows(const char* key, const char* what, std::int64_t here, std::int64_t there) {
    if (here == 0 || here == there || (here > there ? may_pad : may_cut)(expected_.rows))
      return;
    say(key, fmt::format("{} {} here, but {} in {}; {}: {} would {} rows of its embedding", here,
                         what, there, stored_.shape_file, rows_key, here > there ? "pad" : "cut",
                         here > there ? "add" : "leave out"));
  }

  void tokens() {
    const auto theirs = tokenizer_of(stored_);
    if (!theirs || !expected_.tokenizer)
      return;
    const text::Tokenizer& ours = *expected_.tokenizer;
    std::int64_t differing = 0;
    std::string first;
    const std::int64_t both = std::min(ours.vocabulary(), theirs->vocabulary());
    for (text::Token id = 0; id < both; ++id) {
      std::string here, there;
      ours.decode({&id, 1}, here);
      theirs->decode({&id, 1}, there);
      if (here != there && differing++ == 0)
        first = fmt::format("token {} is {:?} here and {:?} there", id, text::shortened(here),
                            text::shortened(there));
    }
    if (ours.end_of_text() && theirs->end_of_text() && ours.end_of_text() != theirs->end_of_text())
      say("data.tokenizer",
          fmt::format("the end-of-text token is {} here, but {} in {}", *ours.end_of_text(),
                      *theirs->end_of_text(), stored_.tokenizer_place));
    if (differing > 0)
      say("data.tokenizer",
          fmt::format("not the tokenizer that {} was trained with, {}: {} of {} tokens differ; {}",
                      stored_.path, stored_.tokenizer_place, differing, both, first));
  }

  const StoredModel& stored_;
  const ExpectedModel& expected_;
  std::vector<Diagnostic> findings_;
};

}  // namespace

std::vector<Diagnostic> find_differences(const StoredModel& stored, const ExpectedModel& expected) {
  return Comparison(stored, expected).run();
}

}  // namespace trireme::weights
