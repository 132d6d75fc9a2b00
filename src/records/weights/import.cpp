// SPDX-License-Identifier: Apache-2.0
#include "weights/import.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "files/new_directory.hpp"

#include "model/layers.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/run_directory.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/open.hpp"

namespace trireme::weights {
namespace {

void expect_tokenizer(const StoredModel& stored, const ImportRequest& request) {
  if (request.without_tokenizer)
    return;
  if (!request.tokenizer && stored.tokenizer.empty())
    throw UserError({stored.path},
                    "there is no tokenizer next to the weights. Name one with --tokenizer "
                    "FILE_OR_DIR, or use --tokenizer none for a model that will not process text.");
  const auto tokenizer = request.tokenizer ? request.tokenizer : tokenizer_of(stored);
  if (tokenizer->vocabulary() > stored.shape.vocabulary)
    throw UserError(
        {stored.shape_file},
        fmt::format("the model's vocabulary of {} is smaller than the tokenizer's {} tokens",
                    stored.shape.vocabulary, tokenizer->vocabulary()));
}

/// Everything that is read before the first file is written.
struct Source {
  model::GptShape shape;
  std::string tokenizer;
  layout::Plan plan;
  std::vector<std::vector<float>> memory = {};
  std::vector<record::Slab> slabs = {};  ///< this rank's part of the weights
  Origin origin = {};
  std::vector<std::string> notes = {};
};

Source read_source(const std::string& place, const ImportRequest& request, comm::World& world) {
  const bool its_own = !request.without_tokenizer && !request.tokenizer;
  StoredModel stored = open_together(
      place, its_own, world, [&](const StoredModel& found) { expect_tokenizer(found, request); });
  Source source{.shape = stored.shape,
                .tokenizer = request.without_tokenizer ? ""
                             : request.tokenizer       ? request.tokenizer->serialized()
                                                       : stored.tokenizer,
                .plan = {model::parameter_table(stored.shape), {.ranks = world.size()}}};
  if (request.tokenizer && !stored.roles.within(request.tokenizer->vocabulary()))
    stored.roles = {};
  InitialWeights initial(std::move(stored), source.shape, request.seed, world);
  std::vector<std::uint64_t> hashes(source.plan.parameters().size());
  comm::together(world, [&] {
    for (std::size_t b = 0; b < source.plan.buckets().size(); ++b)
      for (const layout::Piece& piece :
           source.plan.find_pieces(static_cast<BucketIndex>(b), world.rank())) {
        auto& values = source.memory.emplace_back(static_cast<std::size_t>(piece.elements));
        const View view = view_of(values.data(), piece.elements);
        initial.read(piece.parameter, piece.parameter_begin, view);
        hashes[at(piece.parameter)] += hash_elements(view, piece.parameter_begin);
        source.slabs.push_back({master_state, piece.parameter, piece.parameter_begin, view});
      }
  });
  source.origin = initial.settle(hashes);
  source.notes = initial.notes();
  return source;
}

}  // namespace

Imported import_model(const ImportRequest& request, comm::World& world) {
  std::optional<files::NewDirectory> made;
  comm::on_first_rank(world, [&] { files::expect_new_directory(request.output); });
  std::optional<Source> source;
  read_from(request.source, -1, world,
            [&](const std::string& place) { source.emplace(read_source(place, request, world)); });
  const std::string aside =
      comm::from_first_rank(world, [&] { return made.emplace(request.output).aside(); });
  record::RunDirectory directory(aside, world);
  const std::string run_id = comm::from_first_rank(world, [&] {
    std::string id = record::new_run_id();
    directory.set_id(id);
    return id;
  });
  record::CheckpointFacts facts;
  facts.seed = request.seed;
  facts.model = model_facts(source->shape);
  facts.more = request.build;
  facts.more.emplace_back(record::run_id_fact, run_id);
  facts.more.emplace_back(
      record::tokenizer_fact,
      source->tokenizer.empty()
          ? record::unknown_tokenizer
          : fmt::format("{:016x}", text::tokenizer_from(source->tokenizer)->hash()));
  for (const auto& fact : source->origin.facts()) facts.more.push_back(fact);
  facts.tokenizer = source->tokenizer;
  const auto saved = record::save_checkpoint(aside, source->plan, facts, source->slabs, 0, world);
  comm::on_first_rank(world, [&] { made->commit(); });
  return {source->origin, source->shape, source->plan.parameter_elements(), saved.bytes,
          source->notes};
}

}  // namespace trireme::weights
