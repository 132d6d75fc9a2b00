// SPDX-License-Identifier: Apache-2.0
#include "train/saver.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/text.hpp"

#include "comm/together.hpp"
#include "ops/elementwise.hpp"

#include "model/gpt.hpp"

namespace trireme::train {
namespace {

void add_slabs(std::vector<record::MutableSlab>& slabs,
               const optim::StatePiece& piece,
               std::int64_t begin,
               std::int64_t elements) {
  const auto add = [&](const char* state, View memory) {
    slabs.push_back(
        {state, piece.parameter, begin, memory.slice(begin - piece.parameter_begin, elements)});
  };
  add("master", piece.master);
  add("moment1", piece.m);
  add("moment2", piece.v);
}

/// Everything that lies in this rank's optimizer memory.
std::vector<record::MutableSlab> all_slabs(const optim::AdamW& optimizer) {
  std::vector<record::MutableSlab> slabs;
  for (const optim::StatePiece& piece : optimizer.state())
    add_slabs(slabs, piece, piece.parameter_begin, piece.master.elements);
  return slabs;
}

/// The part of it that this rank writes: what it owns under the plan, also when every rank holds
/// everything.
std::vector<record::MutableSlab> owned_slabs(const layout::Plan& plan,
                                             const optim::AdamW& optimizer,
                                             int rank) {
  std::vector<record::MutableSlab> slabs;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    for (const layout::Piece& owned : plan.find_pieces(static_cast<BucketIndex>(b), rank))
      for (const optim::StatePiece& piece : optimizer.state())
        if (piece.parameter == owned.parameter && piece.parameter_begin <= owned.parameter_begin &&
            owned.parameter_begin + owned.elements <= piece.parameter_begin + piece.master.elements)
          add_slabs(slabs, piece, owned.parameter_begin, owned.elements);
  return slabs;
}

std::int64_t number(const record::NameValues& facts,
                    const char* name,
                    const std::string& directory) {
  for (const auto& [known, value] : facts) {
    std::int64_t read = 0;
    if (known == name &&
        std::from_chars(value.data(), value.data() + value.size(), read).ec == std::errc())
      return read;
  }
  throw UserError({directory, 0, 0},
                  fmt::format("the checkpoint does not tell the model's {}", name));
}

}  // namespace

record::NameValues model_facts(const model::GptShape& shape) {
  return {
      {"layers", std::to_string(shape.layers)},         {"heads", std::to_string(shape.heads)},
      {"channels", std::to_string(shape.channels)},     {"context", std::to_string(shape.context)},
      {"vocabulary", std::to_string(shape.vocabulary)}, {"bias", shape.bias ? "1" : "0"},
      {"tied_head", shape.tied_head ? "1" : "0"}};
}

model::GptShape shape_from(const record::NameValues& facts, const std::string& directory) {
  const auto read = [&](const char* name) { return number(facts, name, directory); };
  model::GptShape shape;
  shape.layers = read("layers");
  shape.heads = read("heads");
  shape.channels = read("channels");
  shape.context = read("context");
  shape.vocabulary = read("vocabulary");
  shape.bias = read("bias") != 0;
  shape.tied_head = read("tied_head") != 0;
  return shape;
}

Saver::Saver(const Job& job,
             const layout::Plan& plan,

             optim::AdamW& optimizer,
             device::Device& device,
             comm::World& world)
    : job_(job),
      plan_(plan),

      optimizer_(optimizer),
      device_(device),
      world_(world) {}

std::optional<Saver::Resumed> Saver::load_newest(const std::string& run_directory, Log& log) {
  std::string directory;
  comm::on_first_rank(world_, [&] {
    if (const auto newest = record::newest_checkpoint(run_directory))
      directory = newest->directory;
  });
  directory = world_.broadcast(std::move(directory), 0);
  if (directory.empty())
    return std::nullopt;

  const auto slabs = all_slabs(optimizer_);
  const auto facts =
      record::load_checkpoint(directory, plan_, model_facts(job_.shape), slabs, world_);
  if (facts.seed != static_cast<std::uint64_t>(job_.run.seed))
    throw UserError(
        fmt::format("run.seed is {}, but {} was made with seed {}; resume with that seed, or name "
                    "another run.directory",
                    job_.run.seed, directory, facts.seed));
  optimizer_.publish_parameters();
  log.info("resumed from {}: step {}, sample {}", directory, facts.step, facts.next_sample);
  return Resumed{facts.step, facts.next_sample};
}

void Saver::initialize(device::Stream& compute) {
  const auto slabs = all_slabs(optimizer_);
  std::int64_t largest = 0;
  for (const layout::Parameter& parameter : plan_.parameters())
    largest = std::max(largest, parameter.elements());
  const device::Buffer scratch =
      device_.allocate(static_cast<std::size_t>(largest) * sizeof(float), "initial values");
  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    const auto parameter = static_cast<ParameterIndex>(p);
    const View values = scratch.view(DType::f32, 0, plan_.parameter(parameter).elements());
    model::initialize_parameter(job_.shape, parameter, static_cast<std::uint64_t>(job_.run.seed),
                                values);
    for (const auto& slab : slabs)
      if (slab.parameter == parameter && slab.state == "master")
        device_.copy(slab.data, values.slice(slab.begin, slab.data.elements), compute);
  }
  optimizer_.publish_parameters();
}

record::SavedCheckpoint Saver::save(const std::string& run_directory,
                                    std::int64_t step,
                                    std::uint64_t next_sample) {
  std::vector<record::Slab> slabs;
  for (const auto& slab : owned_slabs(plan_, optimizer_, world_.rank()))
    slabs.push_back({slab.state, slab.parameter, slab.begin, slab.data});
  const record::CheckpointFacts facts{step, next_sample, static_cast<std::uint64_t>(job_.run.seed),
                                      model_facts(job_.shape), job_.build};
  return record::save_checkpoint(run_directory, plan_, facts, slabs, job_.checkpoint.keep, world_);
}

}  // namespace trireme::train
