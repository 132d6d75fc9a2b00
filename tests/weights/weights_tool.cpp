// SPDX-License-Identifier: Apache-2.0
// The room `weights` for scripts (oracles.py): int32 tokens on standard input, fp32 numbers on
// standard output.
//
//   weights_tool losses MODEL     rows of context + 1 tokens; the loss of each token but the first
//   weights_tool logits MODEL     up to context tokens; the logits after each of them
//   weights_tool gradients MODEL  context + 1 tokens; the gradient of their mean loss, parameter by
//                                 parameter
//
// What a model's files need not say may follow: window=N, layers=SSL (which have the window),
// document=ID (the token with which a document begins, inside of which attention stays).
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

#include "model/gpt.hpp"
#include "model/layers.hpp"

#include "weights/open.hpp"

namespace {

using namespace trireme;

std::vector<std::int32_t> tokens_of_input() {
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  std::vector<std::int32_t> tokens(bytes.size() / sizeof(std::int32_t));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(std::int32_t));
  return tokens;
}

void put(const std::vector<float>& values) {
  std::fwrite(values.data(), sizeof(float), values.size(), stdout);
}

void losses(model::Gpt& gpt, device::Stream& stream, const std::vector<std::int32_t>& tokens) {
  const auto context = gpt.shape().context;
  nn::Hooks hooks;
  std::vector<float> found(static_cast<std::size_t>(context));
  for (std::size_t row = 0; row + static_cast<std::size_t>(context) < tokens.size();
       row += static_cast<std::size_t>(context) + 1) {
    const model::Batch batch{view_of(tokens.data() + row, context),
                             view_of(tokens.data() + row + 1, context)};
    gpt.evaluate(batch, view_of(found.data(), context), hooks, stream);
    stream.synchronize();
    put(found);
  }
}

void logits(model::Gpt& gpt, device::Stream& stream, const std::vector<std::int32_t>& tokens) {
  nn::Hooks hooks;
  std::vector<float> found(static_cast<std::size_t>(gpt.shape().vocabulary));
  for (std::int64_t count = 1; count <= std::ssize(tokens); ++count) {
    gpt.next_logits(view_of(tokens.data(), count), view_of(found.data(), std::ssize(found)), hooks,
                    stream);
    stream.synchronize();
    put(found);
  }
}

void gradients(model::Gpt& gpt,
               device::Stream& stream,
               const std::vector<ConstView>& parameters,
               const std::vector<std::int32_t>& tokens) {
  const auto context = gpt.shape().context;
  std::vector<std::vector<float>> found;
  std::vector<View> views;
  for (const layout::Parameter& parameter : model::parameter_table(gpt.shape()))
    found.emplace_back(static_cast<std::size_t>(parameter.elements()));
  for (auto& values : found) views.push_back(view_of(values.data(), std::ssize(values)));
  gpt.bind(parameters, views);
  nn::Hooks hooks;
  std::vector<float> losses(static_cast<std::size_t>(context));
  const model::Batch batch{view_of(tokens.data(), context), view_of(tokens.data() + 1, context)};
  gpt.train(batch, view_of(losses.data(), context), true, hooks, stream);
  stream.synchronize();
  for (const auto& values : found) put(values);
}

/// Whether there is such an option.
bool set_option(model::GptShape& shape, std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos)
    return false;
  const std::string_view key = word.substr(0, equals);
  const std::string value{word.substr(equals + 1)};
  if (key == "window")
    shape.set_attention_window(std::stoll(value), shape.long_layers);
  else if (key == "layers")
    shape.set_attention_window(shape.attention_window, model::long_layers(value, shape.layers));
  else if (key == "document")
    shape.document_token = std::stoi(value);
  else
    return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return 2;
  try {
    weights::StoredModel stored = weights::open_model(argv[2]);
    for (int i = 3; i < argc; ++i)
      if (!set_option(stored.shape, argv[i]))
        return 2;
    const auto device = device::make_cpu_device(1);
    const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
    const auto loaded = weights::load_parameters(stored, *device, *stream);
    model::Gpt gpt(*device, stored.shape, DType::f32, 1, 0);
    gpt.bind(loaded.views, {});
    const auto tokens = tokens_of_input();
    const std::string kind = argv[1];
    if (kind == "gradients")
      gradients(gpt, *stream, loaded.views, tokens);
    else
      kind == "losses" ? losses(gpt, *stream, tokens) : logits(gpt, *stream, tokens);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
  return 0;
}
