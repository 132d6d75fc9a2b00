// SPDX-License-Identifier: Apache-2.0
#include "inference/loaded_model.hpp"

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"

#include "session/machine.hpp"

namespace trireme::inference {

std::string LoadedModel::title() const {
  return from_checkpoint() ? fmt::format("{}: step {}", stored.path, stored.step)
                           : fmt::format("{}: weights of {}", stored.path, stored.format);
}

const text::Tokenizer& LoadedModel::known_tokenizer() const {
  if (!tokenizer)
    throw UserError(
        Place{stored.path},
        from_checkpoint()
            ? "the deck of this run does not name the tokenizer of its tokens, so there is no "
              "text; resume with data.tokenizer in the deck, and use the next checkpoint"
            : "there is no tokenizer next to these weights, so there is no text; put its "
              "files there, or give `trireme import` a --tokenizer");
  if (stored.shape.vocabulary < tokenizer->vocabulary())
    throw UserError(
        Place{stored.path},
        fmt::format("the model's vocabulary of {} is smaller than the tokenizer's {} tokens",
                    stored.shape.vocabulary, tokenizer->vocabulary()));
  return *tokenizer;
}

namespace {

LoadedModel load_from(const std::string& place, comm::World& world, int threads) {
  LoadedModel loaded;
  loaded.stored = comm::from_first_rank(world, [&] { return weights::open_model(place); });
  comm::together(world, [&] {
    loaded.tokenizer = weights::tokenizer_of(loaded.stored);
    loaded.device = device::make_cpu_device(threads);
    loaded.stream = loaded.device->make_stream(device::StreamMode::inlined, "compute");
    loaded.parameters = weights::load_parameters(loaded.stored, *loaded.device, *loaded.stream);
  });
  return loaded;
}

}  // namespace

LoadedModel load_model(const ModelSource& source, comm::World& world, Log& log) {
  const int threads = session::choose_threads({}, world);
  omp_set_num_threads(threads);
  LoadedModel loaded;
  weights::read_from(source.path, source.step.value_or(-1), world,
                     [&](const std::string& place) { loaded = load_from(place, world, threads); });
  log.info("{}", loaded.title());
  return loaded;
}

}  // namespace trireme::inference
