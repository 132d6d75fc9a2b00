// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation_sets.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/packing.hpp"

#include "inference/multiple_choice.hpp"
#include "inference/scorer.hpp"
#include "session/machine.hpp"

namespace trireme::train {
namespace {

std::string files_of(const session::EvaluationSet& set) {
  if (!set.multiple_choice.empty())
    return "multiple choice: " + set.multiple_choice;
  return set.text.empty() ? fmt::format("tokens: {}", fmt::join(set.tokens, " "))
                          : fmt::format("text: {}", fmt::join(set.text, " "));
}

std::vector<inference::EvaluationData> read(const session::Job& job, comm::World& world, Log& log) {
  const auto& sets = job.evaluate.sets;
  const auto key_of = [](std::size_t set, const std::string& key) {
    return fmt::format("evaluate.sets[{}].{}", set, key);
  };
  return inference::read_evaluation_data(sets, key_of, job.shape, job.tokenizer.get(), world, log);
}

}  // namespace

EvaluationSets::EvaluationSets(const session::Job& job, comm::World& world, Log& log)
    : job_(job),
      world_(world),
      bytes_of_(session::bytes_of_all_tokens(job.tokenizer.get())),
      data_(read(job, world, log)) {}

record::NameValues EvaluationSets::hashes(const record::NameValues& earlier, Log& log) const {
  record::NameValues facts;
  for (std::size_t i = 0; i < data_.size(); ++i) {
    const std::string& name = job_.evaluate.sets[i].name;
    const std::uint64_t hash =
        data_[i].stream ? data_[i].stream->content_hash() : hash_bytes(pack(data_[i].questions));
    const auto& [fact, now] =
        facts.emplace_back("evaluation_data_" + name, fmt::format("{:016x}", hash));
    const std::string then = record::fact_of(earlier, fact);
    if (world_.rank() == 0 && !then.empty() && then != now)
      log.warning(
          "the data of the evaluation set {} have changed since the checkpoint. Its earlier "
          "results in run.h5 are of the old data; use another name to keep them apart",
          name);
  }
  return facts;
}

bool EvaluationSets::due(std::int64_t step) const {
  return std::ranges::any_of(job_.evaluate.sets,
                             [&](const session::EvaluationSet& set) { return is_due(set, step); });
}

std::vector<EvaluationSets::Result> EvaluationSets::evaluate(std::int64_t step,
                                                             session::Session& session,
                                                             const comm::Wanted& interrupts) {
  session.engine.wait_for_parameters();
  const auto passes = session.engine.parameters_share_slots() ? inference::Passes::equal
                                                              : inference::Passes::needed;
  inference::Scorer scorer(*session.device, job_.shape, session.dtype, session.parameter_views(),
                           session.hooks, *session.compute_stream,
                           session::operation_options(job_, *session.device), passes);
  std::vector<Result> results;
  for (std::size_t i = 0; i < data_.size(); ++i) {
    const session::EvaluationSet& set = job_.evaluate.sets[i];
    if (!is_due(set, step))
      continue;
    Result result;
    result.set = &set;
    result.of = files_of(set);
    result.row.step = step;
    if (data_[i].stream) {
      const auto loss =
          inference::token_loss(scorer, *data_[i].stream, bytes_of_, world_, interrupts);
      result.row.loss = loss.loss();
      result.row.bits_per_byte = loss.bits_per_byte();
      result.text = fmt::format("loss {:.4f}", loss.loss());
    } else {
      const auto scores =
          inference::multiple_choice(scorer, data_[i].questions, world_, interrupts);
      result.row.accuracy = scores.sum.value();
      result.row.accuracy_error = scores.sum.standard_error();
      result.row.accuracy_per_token = scores.per_token.value();
      result.row.accuracy_per_token_error = scores.per_token.standard_error();
      if (scores.per_character.of > 0) {
        result.row.accuracy_per_character = scores.per_character.value();
        result.row.accuracy_per_character_error = scores.per_character.standard_error();
      }
      result.text = fmt::format("accuracy {:.4f}, {:.4f} per token (+- {:.4f})", scores.sum.value(),
                                scores.per_token.value(), scores.per_token.standard_error());
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace trireme::train
