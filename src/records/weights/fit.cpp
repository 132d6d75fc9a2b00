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
    const auto ours = model::key_values(here), theirs = model::key_values(there);
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (const auto& [key, value] = ours[i]; value != theirs[i].second && comparable(key))
        say("model." + key,
            fmt::format("{} here, but {} in {}", value, theirs[i].second, stored_.shape_file));
    if (here.positions == model::Positions::learned)
      rows("model.context", "positions", here.context, there.context);
    rows("model.vocabulary", "tokens", here.vocabulary, there.vocabulary);
    tokens();
    return std::move(findings_);
  }

 private:
  void say(const std::string& key, std::string text) {
    findings_.push_back({expected_.place_of(key), key, std::move(text)});
  }

  /// Whether another value of this key is a difference of its own: it does not follow from a size,
  /// is not one of rows, and has a meaning on both sides. Sizes of 0 are not known yet.
  [[nodiscard]] bool comparable(const std::string& key) const {
    const model::GptShape &here = expected_.shape, &there = stored_.shape;
    const bool heads = here.heads == there.heads && here.heads != 0;
    const bool channels = here.channels == there.channels;
    if (key == "context" || key == "vocabulary" || key == "output_init")
      return false;
    if (key == "layers" || key == "heads" || key == "channels")
      return (key == "layers" ? here.layers : key == "heads" ? here.heads : here.channels) != 0;
    if (key == "key_value_heads")
      return heads;
    if (key == "head_channels")
      return heads && channels;
    if (key == "mlp_channels")
      return channels;
    if (key == "window_pattern")
      return here.layers == there.layers && here.attention_window == there.attention_window;
    if (key.starts_with("rotary_scaling.") && key != "rotary_scaling.factor" &&
        (!here.rotary_scaling.active() || !there.rotary_scaling.active()))
      return false;
    return !key.starts_with("rotary_") || here.positions == there.positions;
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
