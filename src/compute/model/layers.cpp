// SPDX-License-Identifier: Apache-2.0
#include "model/layers.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "nn/mlp.hpp"
#include "ops/elementwise.hpp"

namespace trireme::model {
namespace {

// Radford et al. 2019, section 2.3: the layers that write to the residual stream are scaled by one
// over the square root of their number. The deviation of 0.02 is that of the published code
// (github.com/openai/gpt-2, src/model.py). That code has no scaling and uses 0.01 for the position
// embedding; we use 0.02 as later implementations do (nanoGPT, llm.c).
constexpr double deviation = 0.02;

double output_deviation(const GptShape& shape) {
  return shape.output_init == OutputInit::zero
             ? 0
             : deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

nn::MlpConfig mlp_config(const GptShape& shape) {
  return {.channels = shape.channels,
          .hidden = shape.mlp_channels(),
          .bias = shape.bias,
          .deviation = deviation,
          .output_deviation = output_deviation(shape),
          .activation = shape.activation};
}

}  // namespace

nn::AttentionConfig attention_config(const GptShape& shape, std::int64_t layer) {
  return {.channels = shape.channels,
          .heads = shape.heads,
          .head_channels = shape.head_channels(),
          .bias = shape.bias,
          .qkv_bias = shape.bias || shape.qkv_bias,
          .drops = shape.dropout > 0,
          .deviation = deviation,
          .output_deviation = output_deviation(shape),
          .grouped_heads = shape.grouped_heads,
          .qk_norm = shape.qk_norm,
          .epsilon = shape.norm_epsilon,
          .window = shape.window_of(layer),
          .documents = shape.masks_documents()};
}

ops::LossTerms loss_terms(const GptShape& shape) {
  return {.softcap = static_cast<float>(shape.logit_softcap),
          .z_loss = static_cast<float>(shape.z_loss)};
}

ops::AttentionShape attention_shape(const GptShape& shape,
                                    std::int64_t layer,
                                    DType dtype,
                                    std::int64_t sequences) {
  return attention_config(shape, layer).shape({sequences, shape.context, dtype});
}

std::string slow_attention_note(const GptShape& shape, DType dtype) {
  const std::string why = ops::slow_on_gpu(attention_shape(shape, 0, dtype, 1));
  if (why.empty())
    return {};
  return fmt::format(
      "a GPU trains attention with {} in {} without tensor cores, many times slower than with them",
      why, name(dtype));
}

Layers::Layers(const GptShape& given) : shape(given) {
  const bool learned = shape.positions == Positions::learned;
  embedding =
      std::make_unique<nn::Embedding>(registry, nn::EmbeddingConfig{.channels = shape.channels,
                                                                    .vocabulary = shape.vocabulary,
                                                                    .context = shape.context,
                                                                    .shared = shape.tied_head,
                                                                    .deviation = deviation,
                                                                    .positions = learned});
  begin_of_embedding_norm_ = at(registry.next());
  if (shape.embedding_norm)
    embedding_norm = make_norm("", "ln_e");
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const std::string scope = fmt::format("h.{}.", l);
    begin_group();
    auto ln_1 = make_norm(scope, "ln_1");
    add(std::move(ln_1),
        std::make_unique<nn::Attention>(registry, scope, attention_config(shape, l),
                                        learned ? nullptr : &angles));
    auto ln_2 = make_norm(scope, "ln_2");
    add(std::move(ln_2), std::make_unique<nn::Mlp>(registry, scope, mlp_config(shape)));
  }
  begin_group();
  final_norm = make_norm("", "ln_f");
  head = std::make_unique<nn::Head>(
      registry,
      nn::HeadConfig{.channels = shape.channels,
                     .vocabulary = shape.vocabulary,
                     .deviation = shape.output_init == OutputInit::zero ? 0 : deviation,
                     .terms = loss_terms(shape),
                     .loss_rows = shape.loss_rows},
      shape.tied_head ? embedding->tokens() : nn::absent);
  request_fusions();
  indices_.resize(group_begin_.emplace_back(registry.table().size()));
  for (std::size_t i = 0; i < indices_.size(); ++i) indices_[i] = static_cast<ParameterIndex>(i);
}

std::unique_ptr<nn::LayerNorm> Layers::make_norm(const std::string& scope, const char* name) {
  return std::make_unique<nn::LayerNorm>(
      registry, scope, name,
      nn::LayerNormConfig{
          .channels = shape.channels,
          .gain = shape.norm_gain,
          .bias = shape.bias,
          .kind = shape.norm == Norm::layer_norm ? ops::NormKind::layer : ops::NormKind::rms,
          .epsilon = shape.norm_epsilon});
}

void Layers::begin_group() {
  registry.next_group();
  group_begin_.push_back(at(registry.next()));
}

void Layers::add(std::unique_ptr<nn::LayerNorm> norm, std::unique_ptr<nn::Branch> branch) {
  residuals.push_back({.norm = std::move(norm),
                       .branch = std::move(branch),
                       .dropout_site = registry.add_dropout_site(),
                       .x = {}});
}

void Layers::request_fusions() {
  if (shape.dropout > 0)
    return;
  for (std::size_t i = 0; i < residuals.size(); ++i)
    residuals[i].branch->output_layer().request_bias_sums(
        i + 1 < residuals.size() ? *residuals[i + 1].norm : *final_norm);
}

nn::ActivationPlan Layers::plan(DType dtype,
                                std::int64_t sequences,
                                device::Kind kind,
                                const nn::CacheSize& cache) {
  using Scratch = nn::ActivationPlan::Scratch;
  TRIREME_EXPECT(shape.recompute.limit() == nullptr,
                 "the limit of {} bytes was not resolved to recompute words",
                 shape.recompute.limit()->count);
  const std::vector<Recompute>* words = shape.recompute.list();
  TRIREME_EXPECT(words == nullptr || std::ssize(*words) == shape.layers,
                 "recompute of {} blocks for {}", words->size(), shape.layers);
  nn::Planner planner({.dtype = dtype,
                       .sequences = sequences,
                       .context = cache.given() ? 1 : shape.context,
                       .kind = kind,
                       .recompute = shape.recompute,
                       .cache = cache});
  if (shape.positions == Positions::rotary)
    angles = planner.retain_always(
        "rotary", (cache.given() ? cache.positions : shape.context) * shape.head_channels());
  if (embedding_norm)
    embedding_norm->plan(planner, nn::Retention::stream);
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const bool enters = i % per_block == 0;
    if (enters)
      planner.begin_block(i / per_block);
    residuals[i].x = planner.retain(enters ? nn::Retention::stream : nn::Retention::block,
                                    enters ? "x" : "x_middle", shape.channels);
    residuals[i].norm->plan(planner, nn::Retention::block);
    residuals[i].branch->plan(planner);
  }
  planner.end_blocks();
  x_last = planner.retain(nn::Retention::stream, "x_last", shape.channels);
  final_norm->plan(planner, nn::Retention::stream);
  window = planner.retain_always("tokens", planner.sizes().context, DType::i32);
  if (shape.masks_documents() && !cache.given())
    starts = planner.retain(nn::Retention::stream, "document_starts", 1, DType::i32);
  planner.need(&Scratch::narrow, shape.channels);
  planner.need(&Scratch::dx, shape.channels);
  if (shape.dropout > 0)
    planner.need(&Scratch::d_branch, shape.channels);
  head->plan(planner);
  return planner.finish();
}

void Layers::fill(const device::Buffer& memory, device::Device& device) const {
  if (shape.positions != Positions::rotary)
    return;
  const std::int64_t width = shape.head_channels();
  const std::vector<float> table =
      ops::rotary_table(angles.elements / width, width, shape.rotary_theta, shape.rotary_scaling);
  const auto stream = device.make_stream(device::StreamMode::inlined, "rotary");
  device.copy(View(memory.data() + angles.offset, angles.elements, DType::f32),
              view_of(table.data(), std::ssize(table)), *stream);
  stream->synchronize();
}

ConstView Layers::document_starts(const nn::Call& call, ConstView tokens) const {
  if (!shape.masks_documents())
    return call.document_starts;
  const View found = call.view(starts);
  run(
      ops::DocumentStarts{
          .starts = found, .tokens = tokens, .time = shape.context, .token = shape.document_token},
      call.stream);
  return found;
}

std::size_t Layers::size_of(nn::Kernels& kernels, const nn::BatchSize& size) {
  const auto [found, is_new] = sizes_.try_emplace(size.sequences, sizes_.size());
  if (is_new) {
    for (const Residual& residual : residuals) residual.branch->prepare(kernels, size);
    head->prepare(kernels, size);
  }
  return found->second;
}

std::vector<layout::Parameter> parameter_table(const GptShape& shape) {
  return Layers(shape).registry.table();
}

/// The attention term of llm.c: two products per pair of query and key in forward, twice as many in
/// backward, for half the pairs. With a window W (2 T - W) of T T pairs remain: W per token, and
/// half of that for the first W tokens. Pairs hidden by a document mask depend on the data and are
/// counted as work.
double flops_per_token(const GptShape& shape) {
  double flops = 6.0 * static_cast<double>(layout::total_elements(parameter_table(shape)));
  const auto time = static_cast<double>(shape.context);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const auto most = static_cast<double>(shape.window_of(l));
    const double window = most > 0 ? std::min(time, most) : time;
    flops += 6.0 * static_cast<double>(shape.heads * shape.head_channels()) * window *
             (2 - window / time);
  }
  return flops;
}

nn::ActivationPlan activation_plan(const GptShape& shape,
                                   DType dtype,
                                   std::int64_t micro_sequences,
                                   device::Kind kind) {
  return Layers(shape).plan(dtype, micro_sequences, kind);
}

std::vector<nn::ListedProduct> linear_products(const GptShape& shape,
                                               DType dtype,
                                               std::int64_t micro_sequences,
                                               device::Kind kind) {
  Layers layers(shape);
  layers.plan(dtype, micro_sequences, kind);
  const nn::BatchSize size{micro_sequences, shape.context, dtype};
  std::vector<nn::ListedProduct> all;
  for (const Residual& residual : layers.residuals)
    for (const nn::ListedProduct& product : residual.branch->products(size)) {
      const auto known = std::ranges::find_if(all, [&](const nn::ListedProduct& one) {
        return one.layer == product.layer && one.products == product.products &&
               one.bias_is_fused == product.bias_is_fused;
      });
      if (known == all.end())
        all.push_back(product);
      else
        ++known->count;
    }
  std::ranges::copy(layers.head->products(size), std::back_inserter(all));
  return all;
}

}  // namespace trireme::model
