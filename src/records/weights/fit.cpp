// SPDX-License-Identifier: Apache-2.0
#include "weights/fit.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "text/json_file.hpp"

#include "weights/open.hpp"

namespace trireme::weights {
namespace {

constexpr const char* rows_key = "run.initial_rows";

using Say = std::function<void(const std::string& key, std::string text)>;

/// Whether a difference in this key should be reported on its own: it does not follow from a size,
/// does not concern rows, and applies to both models. Sizes of 0 are not known yet.
bool comparable(const std::string& key, const model::GptShape& here, const model::GptShape& there) {
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

void compare_tokens(const text::Tokenizer& ours, const StoredModel& stored, const Say& say) {
  const auto theirs = tokenizer_of(stored);
  if (!theirs)
    return;
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
                    *theirs->end_of_text(), stored.tokenizer_place));
  if (differing > 0)
    say("data.tokenizer",
        fmt::format("not the tokenizer that {} was trained with, {}: {} of {} tokens differ; {}",
                    stored.path, stored.tokenizer_place, differing, both, first));
}

}  // namespace

std::vector<Diagnostic> find_differences(const StoredModel& stored, const ExpectedModel& expected) {
  std::vector<Diagnostic> findings;
  const Say say = [&](const std::string& key, std::string text) {
    findings.push_back({{}, key, std::move(text)});
  };
  const auto compare_rows = [&](const char* key, const char* what, std::int64_t here,
                                std::int64_t there) {
    if (here != 0 && here != there && !(here > there ? may_pad : may_cut)(expected.rows))
      say(key, fmt::format("{} {} here, but {} in {}; {}: {} would {} rows of its embedding", here,
                           what, there, stored.shape_file, rows_key, here > there ? "pad" : "cut",
                           here > there ? "add" : "leave out"));
  };
  const model::GptShape &here = expected.shape, &there = stored.shape;
  const auto ours = model::key_values(here), theirs = model::key_values(there);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (const auto& [key, value] = ours[i];
        value != theirs[i].second && comparable(key, here, there))
      say("model." + key,
          fmt::format("{} here, but {} in {}", value, theirs[i].second, stored.shape_file));
  if (here.positions == model::Positions::learned)
    compare_rows("model.context", "positions", here.context, there.context);
  compare_rows("model.vocabulary", "tokens", here.vocabulary, there.vocabulary);
  if (expected.tokenizer)
    compare_tokens(*expected.tokenizer, stored, say);
  return findings;
}

}  // namespace trireme::weights
