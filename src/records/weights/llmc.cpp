// SPDX-License-Identifier: Apache-2.0
#include "weights/llmc.hpp"

#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "files/descriptor.hpp"

#include "model/layers.hpp"

#include "weights/family.hpp"

namespace trireme::weights {
namespace {

constexpr std::int64_t row_granule = 128;

/// The tensors of a file, each for all layers, with our parameter; '#' is the layer.
constexpr std::pair<const char*, const char*> llmc_tensors[] = {
    {"wte", "wte.weight"},
    {"wpe", "wpe.weight"},
    {"ln1w", "h.#.ln_1.weight"},
    {"ln1b", "h.#.ln_1.bias"},
    {"qkvw", "h.#.attn.qkv.weight"},
    {"qkvb", "h.#.attn.qkv.bias"},
    {"attprojw", "h.#.attn.proj.weight"},
    {"attprojb", "h.#.attn.proj.bias"},
    {"ln2w", "h.#.ln_2.weight"},
    {"ln2b", "h.#.ln_2.bias"},
    {"fcw", "h.#.mlp.fc.weight"},
    {"fcb", "h.#.mlp.fc.bias"},
    {"fcprojw", "h.#.mlp.proj.weight"},
    {"fcprojb", "h.#.mlp.proj.bias"},
    {"lnfw", "ln_f.weight"},
    {"lnfb", "ln_f.bias"}};

std::string of_block(std::string pattern, std::int64_t block) {
  if (const auto hash = pattern.find('#'); hash != std::string::npos)
    pattern.replace(hash, 1, std::to_string(block));
  return pattern;
}

/// Throws UserError unless the header is one that can be read.
void expect_header(const std::string& path, const LlmcHeader& header) {
  Findings findings;
  const auto say = [&](int word, std::string text) {
    findings.add({path}, "", fmt::format("at byte {}: {}", 4 * word, text));
  };
  if (header[0] != llmc_model_magic)
    say(0, fmt::format("the magic number is {}; a model file of llm.c has {}", header[0],
                       llmc_model_magic));
  else if (header[1] != 3 && header[1] != 5)
    say(1, fmt::format("unknown version {}; known are 3 (fp32) and 5 (bf16)", header[1]));
  findings.settle();
  const auto bounded = [&](int word, const char* what, std::int64_t most) {
    if (header[static_cast<std::size_t>(word)] < 1 || header[static_cast<std::size_t>(word)] > most)
      say(word, fmt::format("{} {}; must be from 1 to {}", header[static_cast<std::size_t>(word)],
                            what, most));
  };
  bounded(2, "tokens of context", 1 << 20);
  bounded(3, "tokens in the vocabulary", 1 << 20);
  bounded(4, "layers", model::most_layers);
  bounded(5, "heads", 1024);
  bounded(6, "channels", 65536);
  bounded(7, "rows of the embedding", 1 << 21);
  if (findings.size() == 0 && header[6] % header[5] != 0)
    say(5, fmt::format("{} heads do not divide {} channels", header[5], header[6]));
  if (findings.size() == 0 && header[7] < header[3])
    say(7, fmt::format("{} rows of the embedding for a vocabulary of {}", header[7], header[3]));
  findings.settle();
}

}  // namespace

std::int64_t llmc_rows(std::int64_t vocabulary) {
  return rounded_up(vocabulary, row_granule);
}

std::vector<LlmcElement> llmc_order(const model::GptShape& shape, std::int64_t rows) {
  std::map<std::string, layout::Parameter> table;
  for (layout::Parameter& parameter : model::parameter_table(shape))
    table.emplace(parameter.name, parameter);
  std::vector<LlmcElement> order;
  for (const auto& [name, parameter] : llmc_tensors) {
    const bool blocks = std::string_view(parameter).find('#') != std::string_view::npos;
    for (std::int64_t block = 0; block < (blocks ? shape.layers : 1); ++block)
      order.push_back({name, table.at(of_block(parameter, block))});
  }
  order.front().unused =
      ((rows > 0 ? rows : llmc_rows(shape.vocabulary)) - shape.vocabulary) * shape.channels;
  return order;
}

std::vector<std::string> parts_beyond_llmc(const model::GptShape& shape) {
  std::vector<std::string> beyond = parts_beyond(families().front(), shape);
  const model::GptShape gpt2;
  const auto require = [&](bool possible, const char* key, const auto& value) {
    if (!possible)
      beyond.push_back(fmt::format("model.{}: {}", key, value));
  };
  require(shape.tied_head, "tied_head", false);
  require(shape.activation != model::Activation::squared_relu, "activation",
          word(shape.activation));
  require(shape.hidden == gpt2.hidden, "mlp_channels", shape.mlp_channels());
  require(shape.norm_epsilon == gpt2.norm_epsilon, "norm_epsilon", shape.norm_epsilon);
  return beyond;
}

LlmcHeader llmc_header(const model::GptShape& shape, StoredType type) {
  TRIREME_EXPECT(parts_beyond_llmc(shape).empty() && shape.bias && type != StoredType::f16,
                 "bias {}, tied head {}, type {}", shape.bias, shape.tied_head, word(type));
  const auto word = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {llmc_model_magic,     type == StoredType::f32 ? 3 : 5,
          word(shape.context),  word(shape.vocabulary),
          word(shape.layers),   word(shape.heads),
          word(shape.channels), word(llmc_rows(shape.vocabulary))};
}

bool is_llmc(const std::string& file) {
  const files::InputFile input(file);
  std::int32_t magic = 0;
  return input.read_some(0, std::as_writable_bytes(std::span(&magic, 1))) == sizeof magic &&
         magic == llmc_model_magic;
}

StoredModel open_llmc(const std::string& file) {
  const files::InputFile input(file);
  if (input.size() < llmc_header_bytes)
    throw UserError({file},
                    fmt::format("the file has {} bytes; the header of a model file of llm.c has {}",
                                input.size(), llmc_header_bytes));
  LlmcHeader header;
  input.read(0, std::as_writable_bytes(std::span(header)));
  expect_header(file, header);
  StoredModel model{.path = file, .format = "llm.c", .shape_file = file};
  model.files = {file};
  model.shape = {.layers = header[4],
                 .heads = header[5],
                 .channels = header[6],
                 .context = header[2],
                 .vocabulary = header[3]};
  const StoredType type = header[1] == 3 ? StoredType::f32 : StoredType::bf16;
  const auto size = static_cast<std::int64_t>(size_bytes(type));
  std::map<std::string, StoredTensor> found;
  std::int64_t at = llmc_header_bytes;
  for (const LlmcElement& element : llmc_order(model.shape, header[7])) {
    const layout::Parameter& parameter = element.parameter;
    found[parameter.name] = {.parameter = parameter.name,
                             .name = element.name,
                             .shape = parameter.shape,
                             .type = type,
                             .extents = {{0, at, 0, parameter.elements()}}};
    at += (parameter.elements() + element.unused) * size;
  }
  if (at != input.size())
    throw UserError({file},
                    fmt::format("the file has {} bytes; a {} model of {} layers, {} channels, "
                                "context {} and {} rows of the embedding needs {}",
                                input.size(), type == StoredType::f32 ? "fp32" : "bf16", header[4],
                                header[6], header[2], header[7], at));
  for (const layout::Parameter& parameter : model::parameter_table(model.shape))
    model.tensors.push_back(std::move(found.at(parameter.name)));
  return model;
}

}  // namespace trireme::weights
