// SPDX-License-Identifier: Apache-2.0
#include "train/text_sample.hpp"

#include <cctype>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "comm/placement.hpp"

#include "model/sampler.hpp"

#include "record/checkpoint.hpp"

#include "train/machine.hpp"
#include "train/saver.hpp"

namespace trireme::train {

std::string continue_text(model::Gpt& model,
                          device::Device& device,
                          const TextRequest& request,
                          model::Hooks& hooks,
                          device::Stream& stream) {
  constexpr std::int64_t bytes = 256;
  if (model.shape().vocabulary < bytes)
    throw UserError(fmt::format("a vocabulary of {} does not hold bytes; text needs 256",
                                model.shape().vocabulary));
  const std::string& prompt = request.prompt.empty() ? std::string("\n") : request.prompt;
  std::vector<std::int32_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  const auto drawn =
      model::generate(model, device, tokens,
                      {request.tokens, request.temperature, request.seed, bytes}, hooks, stream);
  std::string text;
  for (const std::int32_t token : drawn) text += static_cast<char>(token);
  return text;
}

std::string for_terminal(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte < 0x7f && std::isprint(byte) != 0))
      shown += c;
    else
      shown += fmt::format("\\x{:02x}", byte);
  }
  return shown;
}

std::string sample_run(const std::string& run_directory, const TextRequest& request, Log& log) {
  const auto newest = record::newest_checkpoint(run_directory);
  if (!newest)
    throw UserError(
        {run_directory, 0, 0},
        "no checkpoint below this directory; train with checkpoint.every_steps > 0 first");
  const record::CheckpointReader reader(newest->directory);
  const model::GptShape shape = shape_from(reader.facts().model, newest->directory);
  log.info("{}: step {}", newest->directory, reader.facts().step);

  const int threads = static_cast<int>(comm::place_here("", 1).cpus.size());
  omp_set_num_threads(threads);
  const auto device = device::make_cpu_device(threads);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  const auto table = model::parameter_table(shape);
  std::vector<device::Buffer> memory;
  std::vector<ConstView> parameters;
  for (const layout::Parameter& parameter : table) {
    memory.push_back(device->allocate(
        static_cast<std::size_t>(parameter.elements()) * sizeof(float), parameter.name));
    const View view = memory.back().view(DType::f32, 0, parameter.elements());
    reader.read("master", parameter.name, view);
    parameters.emplace_back(view);
  }
  model::Gpt model(*device, shape, DType::f32, 1, 0);
  model.bind(std::move(parameters), {});
  model::NoHooks hooks;
  return request.prompt + continue_text(model, *device, request, hooks, *stream);
}

}  // namespace trireme::train
