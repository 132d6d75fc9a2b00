// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "model/layers.hpp"
#include "nn/head.hpp"
#include "nn/linear_products.hpp"
#include "ops/activations.hpp"
#include "ops/attention.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/head_norm.hpp"
#include "ops/layer_norm.hpp"
#include "ops/optimizer/adamw.hpp"
#include "ops/optimizer/order_free_sum.hpp"
#include "ops/rotary.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"

#include "bench/ceiling.hpp"
#include "bench/deck_bench.hpp"
#include "bench/race.hpp"

namespace trireme::bench {
namespace {

/// The value of model.loss_rows that is tried if the deck does not give one: 26 MB of GPT-2's
/// logits in bf16, half of an H200's L2 cache (docs/results/h100_switches.csv).
constexpr std::int64_t candidate_loss_rows = 256;

struct OpsRow {
  std::string op;
  double per_step = 0;  ///< calls in one rank's step
  double seconds = 0;   ///< of one call
  double bytes = 0, flops = 0;
  bool product = false;  ///< its rate is in FLOP/s
};

/// Measures the rows of one bench; owns their operands.
class Maker {
 public:
  Maker(const session::Job& job,
        DType dtype,
        device::Device& device,
        device::Stream& stream,
        comm::World& world)
      : job_(job),
        dtype_(dtype),
        device_(device),
        stream_(stream),
        options_(session::operation_options(job, device)),
        micro_steps_(micro_batches_of(job, world.size())),
        plan_(session::plan_of(job, world, device)),
        first_sample_(device.allocate(sizeof(std::uint64_t), "first sample")) {}

  void add_all() {
    add_linear();
    add_attention();
    add_norms();
    add_elementwise();
    add_embedding();
    add_loss();
    add_optimizer();
  }

  std::vector<OpsRow> rows;
  std::vector<std::function<void()>> entrants;

 private:
  /// Small numbers, or tokens, which exist until the bench ends.
  View tensor(DType dtype, std::int64_t elements) {
    buffers_.push_back(
        device_.allocate(static_cast<std::size_t>(elements) * size_bytes(dtype), "bench"));
    const View view = buffers_.back().view(dtype, 0, elements);
    if (dtype == DType::i32)
      fill_tokens(view);
    else
      fill_small_numbers(view, stream_);
    return view;
  }
  View tensor(std::int64_t elements) { return tensor(dtype_, elements); }
  /// Empty where the model does not have it.
  View tensor_if(bool has, DType dtype, std::int64_t elements) {
    return has ? tensor(dtype, elements) : View(nullptr, 0, dtype);
  }
  void fill_tokens(View to) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(to.elements));
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(i * 31 % static_cast<std::size_t>(shape_.vocabulary));
    device_.copy(to, view_of(ids.data(), to.elements), stream_);
    stream_.synchronize();
  }

  void add(std::string op, double per_step, double bytes, std::function<void()> run) {
    rows.push_back({std::move(op), per_step, 0, bytes, 0, false});
    entrants.push_back(std::move(run));
  }
  template <class Operation>
  requires requires { Operation::name; }
  void add(std::string op, double per_step, double bytes, const Operation& operation) {
    add(std::move(op), per_step, bytes, [operation, &s = stream_] { ops::run(operation, s); });
  }
  void add_product(std::string op, double per_step, double flops, std::function<void()> run) {
    rows.push_back({std::move(op), per_step, 0, 0, flops, true});
    entrants.push_back(std::move(run));
  }
  /// Bytes of elements of the activations' dtype, and of fp32 elements.
  [[nodiscard]] double bytes(double elements, double fp32 = 0) const {
    return elements * static_cast<double>(size_bytes(dtype_)) + 4 * fp32;
  }
  [[nodiscard]] double per_layer(double times) const {
    return times * static_cast<double>(shape_.layers) * micro_steps_;
  }

  [[nodiscard]] ops::Dropout dropout() const {
    ops::Dropout made;
    made.rate = static_cast<float>(shape_.dropout);
    made.first_sample = reinterpret_cast<const std::uint64_t*>(first_sample_.data());
    return made;
  }

  void add_linear() {
    for (const nn::ListedProduct& listed :
         model::linear_products(shape_, dtype_, job_.batch.micro_sequences, device_.kind())) {
      add_linear(listed);
      if (listed.logits)
        head_ = listed.products;
    }
  }

  /// Products with and without an operation that the device can fuse; the step has one of the two.
  void add_linear(const nn::ListedProduct& listed) {
    const ops::ProductOptions& chosen = options_.products;
    ops::ProductOptions most = chosen;
    most.fused_gelu = most.fused_gelu_backward = most.fused_row_sums = true;
    const LayerRuns runs =
        runs_of(listed, dtype_, chosen, &most, stream_,
                [&](const char*, DType type, std::int64_t size) { return tensor(type, size); });
    const double count = static_cast<double>(listed.count) * micro_steps_;
    // Adds both, and returns how often a step runs the operation without fusing it.
    const auto add_both = [&](const std::string& pass, const LayerRuns::Run& alone,
                              const char* more, const LayerRuns::Run& with, bool fuses) {
      const double unfused = with && fuses ? 0 : count;
      const bool in_parts =
          pass == "forward" && listed.logits && plan_of_rows().loss_rows() < listed.products.rows;
      const std::string op = listed.layer + "." + pass;
      add_product(op, in_parts ? 0 : unfused, listed.flops(), alone);  // add_loss() has the parts
      if (with)
        add_product(op + more, count - unfused, listed.flops(), with);
      return unfused;
    };
    const double forwards =
        add_both("forward", runs.forward, " with gelu", runs.forward_with_gelu, chosen.fused_gelu);
    const double backwards = add_both("input_gradient", runs.input, " with gelu",
                                      runs.input_with_gelu, chosen.fused_gelu_backward);
    gelu_forwards_ += listed.products.gelu_after ? forwards : 0;
    gelu_backwards_ += listed.products.gelu_before ? backwards : 0;
    const bool on_cpu = device_.kind() == device::Kind::cpu;  // always, if the kernel can
    const double biases = add_both("weight_gradient", runs.weight_gradient, " with bias",
                                   runs.weight_gradient_with_bias, on_cpu || chosen.fused_row_sums);
    const View dy = runs.operands.dy, dbias = runs.operands.dbias;
    if (!dbias.empty())
      add(listed.layer + ".bias_gradient", biases, bytes(static_cast<double>(dy.elements)),
          ops::BiasBackward{.db = dbias, .dy = dy});
  }

  void add_attention() {
    const auto whole = static_cast<std::int64_t>(shape_.long_layers.count());
    if (whole == 0) {
      add_attention("attention", 0, shape_.layers);
      return;
    }
    std::int64_t first_whole = 0, first_short = 0;
    while (shape_.window_of(first_whole) > 0) ++first_whole;
    while (shape_.window_of(first_short) == 0) ++first_short;
    add_attention("attention", first_whole, whole);
    add_attention("windowed_attention", first_short, shape_.layers - whole);
  }

  /// Document starts of rows with one document each; empty without document mask.
  View document_starts() {
    const View starts = tensor(DType::i32, shape_.masks_documents() ? rows_ : 0);
    device_.fill_zero(starts, stream_);
    return starts;
  }

  /// Attention of `layers` layers like `layer`.
  void add_attention(const std::string& op, std::int64_t layer, std::int64_t layers) {
    const nn::AttentionConfig config = model::attention_config(shape_, layer);
    const auto attention = std::make_shared<ops::Attention>(
        device_, model::attention_shape(shape_, layer, dtype_, job_.batch.micro_sequences),
        options_.attention);
    const double count = static_cast<double>(layers) * micro_steps_;
    const View qkv = tensor(rows_ * config.qkv_width()), out = tensor(rows_ * config.width());
    const View dout = tensor(out.elements), dqkv = tensor(qkv.elements);
    const View lse = tensor(DType::f32, rows_ * shape_.heads), starts = document_starts();
    const ops::Dropout dropout = this->dropout();
    device::Stream& s = stream_;
    add_product(op + ".forward", count, attention->forward_flops(), [=, &s] {
      attention->forward({.out = out, .lse = lse, .qkv = qkv, .starts = starts, .dropout = dropout},
                         s);
    });
    // Scores again, dP, dV, dQ and dK: five products, whereas forward has two.
    add_product(op + ".backward", count, 2.5 * attention->forward_flops(), [=, &s] {
      attention->backward({.dqkv = dqkv,
                           .dout = dout,
                           .qkv = qkv,
                           .out = out,
                           .lse = lse,
                           .starts = starts,
                           .dropout = dropout},
                          s);
    });
  }

  void add_norms() {
    const std::int64_t C = shape_.channels, n = rows_ * C;
    const bool centered = shape_.norm == model::Norm::layer_norm;
    const View bias = tensor_if(shape_.bias && centered, dtype_, C);
    ops::LayerNormForward forward{.kind = centered ? ops::NormKind::layer : ops::NormKind::rms,
                                  .y = tensor(n),
                                  .mean = tensor_if(centered, DType::f32, rows_),
                                  .rstd = tensor(DType::f32, rows_),
                                  .x = tensor(n),
                                  .gamma = tensor_if(shape_.norm_gain, dtype_, C),
                                  .beta = bias,
                                  .channels = C,
                                  .epsilon = static_cast<float>(shape_.norm_epsilon)};
    const ops::LayerNormBackward backward{.kind = forward.kind,
                                          .dx = tensor(n),
                                          .dgamma = tensor_if(shape_.norm_gain, DType::f32, C),
                                          .dbeta = tensor_if(!bias.empty(), DType::f32, C),
                                          .dbias = tensor(DType::f32, C),
                                          .dy = forward.y,
                                          .x = forward.x,
                                          .gamma = forward.gamma,
                                          .mean = forward.mean,
                                          .rstd = forward.rstd,
                                          .channels = C,
                                          .accumulate = true};
    const double elements = static_cast<double>(n);
    const std::string norm = word(shape_.norm);
    add(norm + ".forward", micro_steps_, bytes(2 * elements), forward);
    forward.branch = tensor(n);
    forward.sum = tensor(n);
    forward.rows_per_sample = shape_.context;
    forward.dropout = dropout();
    add("residual_" + norm + ".forward", per_layer(2), bytes(4 * elements), forward);
    add(norm + ".backward", per_layer(2) + micro_steps_, bytes(4 * elements), backward);
  }

  void add_activation() {
    const std::int64_t columns = shape_.mlp_channels();
    const bool gated = shape_.activation == model::Activation::swiglu;
    const View out = tensor(rows_ * columns), in = tensor((gated ? 2 : 1) * out.elements);
    const View d_in = gated ? tensor(in.elements) : out;
    const auto read = static_cast<double>(in.elements), made = static_cast<double>(out.elements);
    double again = 0;  // forward passes that backward repeats
    for (std::size_t l = 0; l < static_cast<std::size_t>(shape_.layers); ++l)
      again += shape_.recompute.of(l) == model::Recompute::gelu ? micro_steps_ : 0;
    const bool gelu = shape_.activation == model::Activation::gelu;
    const std::string op = word(shape_.activation);
    // Without those fused with products; twice if the deck recomputes them.
    add(op + ".forward", gelu ? gelu_forwards_ + 2 * again : per_layer(1) + again,
        bytes(read + made),
        ops::ActivationForward{
            .y = out, .x = in, .function = shape_.activation, .columns = columns});
    add(op + ".backward", gelu ? gelu_backwards_ : per_layer(1),
        bytes(gated ? 2 * read + made : read + 2 * made),
        ops::ActivationBackward{
            .dx = d_in, .dy = out, .x = in, .function = shape_.activation, .columns = columns});
  }

  void add_rotation() {
    const ops::AttentionShape shape =
        model::attention_shape(shape_, 0, dtype_, job_.batch.micro_sequences);
    const ops::RotaryShape rotary{.time = shape.time,
                                  .heads = shape.heads + shape.key_value_heads(),
                                  .head_channels = shape.head_channels,
                                  .stride = shape.packed_width()};
    const View packed = tensor(rows_ * rotary.stride);
    const View table = tensor(DType::f32, shape.time * shape.head_channels);
    add("rotate", per_layer(2),
        bytes(2 * static_cast<double>(rows_ * rotary.heads * rotary.head_channels)),
        ops::Rotate{.packed = packed, .table = table, .shape = rotary});
  }

  /// Including the rotation, if there is one.
  void add_head_norm() {
    const ops::AttentionShape attention =
        model::attention_shape(shape_, 0, dtype_, job_.batch.micro_sequences);
    const std::int64_t heads = attention.heads + attention.key_value_heads();
    const std::int64_t D = attention.head_channels, n = rows_ * heads * D;
    const bool gains = shape_.qk_norm == model::QkNorm::with_gain;
    const bool rotates = shape_.positions == model::Positions::rotary;
    const View gain = tensor_if(gains, dtype_, D), d_gain = tensor_if(gains, DType::f32, D);
    const ops::HeadNorm norm{.query_gain = gain,
                             .key_gain = gain,
                             .table = tensor_if(rotates, DType::f32, attention.time * D),
                             .shape = {.time = attention.time,
                                       .heads = heads,
                                       .head_channels = D,
                                       .stride = attention.packed_width()},
                             .query_heads = attention.heads,
                             .epsilon = static_cast<float>(shape_.norm_epsilon)};
    const View packed = tensor(rows_ * norm.shape.stride), raw = tensor(n);
    const View rstd = tensor(DType::f32, rows_ * heads);
    const auto elements = static_cast<double>(n);
    add("head_norm.forward", per_layer(1), bytes(3 * elements),
        ops::HeadNormForward{.packed = packed, .raw = raw, .rstd = rstd, .norm = norm});
    add("head_norm.backward", per_layer(1), bytes(3 * elements),
        ops::HeadNormBackward{.d_packed = packed,
                              .d_query_gain = d_gain,
                              .d_key_gain = d_gain,
                              .raw = raw,
                              .rstd = rstd,
                              .norm = norm});
  }

  void add_elementwise() {
    const std::int64_t n = rows_ * shape_.channels, sample = shape_.context * shape_.channels;
    const ops::Dropout dropout = this->dropout();
    const auto elements = static_cast<double>(n);
    add_activation();
    if (shape_.qk_norm != model::QkNorm::none)
      add_head_norm();
    else if (shape_.positions == model::Positions::rotary)
      add_rotation();
    if (dropout.active())
      add("dropout.backward", per_layer(2), bytes(2 * elements),
          ops::DropoutBackward{.dbranch = tensor(n),
                               .dy = tensor(n),
                               .elements_per_sample = sample,
                               .dropout = dropout});
  }

  void add_embedding() {
    const std::int64_t C = shape_.channels, V = shape_.vocabulary;
    const ops::EmbeddingShape embedding{job_.batch.micro_sequences, shape_.context, C, V};
    const View tokens = tensor(DType::i32, rows_), out = tensor(rows_ * C);
    const bool learned = shape_.positions == model::Positions::learned;
    const View wte = tensor(V * C), dwte = tensor(DType::f32, V * C);
    const View wpe = tensor_if(learned, dtype_, shape_.context * C);
    const View dwpe = tensor_if(learned, DType::f32, shape_.context * C);
    const ops::Dropout dropout = this->dropout();
    const double elements = static_cast<double>(rows_ * C);
    add("embedding.forward", micro_steps_, bytes(3 * elements),
        ops::EmbeddingForward{.out = out,
                              .tokens = tokens,
                              .wte = wte,
                              .wpe = wpe,
                              .shape = embedding,
                              .dropout = dropout});
    add("embedding.backward", micro_steps_, bytes(elements, 4 * elements),
        ops::EmbeddingBackward{.dwte = dwte,
                               .dwpe = dwpe,
                               .dout = out,
                               .tokens = tokens,
                               .shape = embedding,
                               .dropout = dropout});
  }

  [[nodiscard]] nn::ActivationPlan plan_of_rows() const {
    return model::activation_plan(shape_, dtype_, job_.batch.micro_sequences, device_.kind());
  }

  /// The loss of a chunk of the head's rows. In parts, or on a GPU, also product and loss
  /// alternating as in a step, because only then the loss finds logits in a cache.
  void add_loss() {
    const std::int64_t V = shape_.vocabulary;
    const nn::ActivationPlan plan = plan_of_rows();
    const std::int64_t chunk = plan.head_rows();
    const View logits = tensor(plan.scratch().logits.dtype, chunk * V);
    const View d_logits = dtype_ == logits.dtype ? logits : tensor(chunk * V);
    const View losses = tensor(DType::f32, chunk);
    const View targets = tensor(DType::i32, chunk);
    const double count = micro_steps_ * static_cast<double>(rows_) / static_cast<double>(chunk);
    const ops::CrossEntropy loss{.losses = losses,
                                 .d_logits = d_logits,
                                 .logits = logits,
                                 .targets = targets,
                                 .terms = model::loss_terms(shape_),
                                 .scale = 1e-3F};
    const bool in_parts = plan.loss_rows() < chunk;
    add("cross_entropy", in_parts ? 0 : count,
        static_cast<double>(logits.bytes() + d_logits.bytes()), loss);
    const std::int64_t part =
        in_parts ? plan.loss_rows() : nn::rows_of_loss(candidate_loss_rows, chunk, shape_.context);
    if (!in_parts && (device_.kind() == device::Kind::cpu || part == chunk))
      return;

    nn::LinearShape product = head_;
    const auto of_rows = [&](std::int64_t m) {
      product.rows = m;
      return std::make_shared<ops::Matmul>(device_, product.forward(), options_.products);
    };
    const auto usual = of_rows(part), last = of_rows(chunk % part > 0 ? chunk % part : part);
    const std::int64_t C = shape_.channels;
    const View x = tensor(chunk * C), weight = tensor(V * C);
    const double flops = 2.0 * static_cast<double>(chunk) * static_cast<double>(V * C);
    const bool in_place = logits.dtype == dtype_;
    add_product(fmt::format("head.forward, cross_entropy by {} rows", part), in_parts ? count : 0,
                flops, [=, &s = stream_] {
                  for (std::int64_t at = 0; at < chunk; at += part) {
                    const std::int64_t m = std::min(part, chunk - at);
                    const View to = logits.slice(in_place ? at * V : 0, m * V);
                    (*(m == part ? usual : last))(
                        {.a = x.slice(at * C, m * C), .b = weight, .c = to}, s);
                    ops::CrossEntropy part_loss = loss;
                    part_loss.losses = losses.slice(at, m);
                    part_loss.d_logits = d_logits.slice(at * V, m * V);
                    part_loss.logits = to;
                    part_loss.targets = targets.slice(at, m);
                    run(part_loss, s);
                  }
                });
  }

  void add_optimizer() {
    const std::int64_t n =
        job_.parallel.sharded() ? plan_.owned_elements() : plan_.parameter_elements();
    const DType moments = optim::dtype_of(job_.optimizer.moment_dtype);
    const View parameter = tensor(n), m = tensor(moments, n), v = tensor(moments, n);
    const View master = dtype_ == DType::f32 ? parameter : tensor(DType::f32, n);
    const View gradient = tensor(DType::f32, n);
    device_.fill_zero(v, stream_);
    const ops::AdamwStep step{1e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.5F, 0.5F};
    const auto fresh = [&](std::size_t size) -> const device::Buffer& {
      return buffers_.emplace_back(device_.allocate(size, "bench"));
    };
    const View squares = fresh(sizeof(double)).view(DType::f64);  // zero: a scale of 1
    auto& norm = *reinterpret_cast<ops::GradientNorm*>(fresh(sizeof(ops::GradientNorm)).data());
    ops::gradient_norm(norm, squares, {}, stream_);

    const auto elements = static_cast<double>(n);
    const double of_moments =
        4 * static_cast<double>(m.bytes());  // two moments are read and written
    add("adamw", 1, bytes(dtype_ == DType::f32 ? 0 : elements, 3 * elements) + of_moments,
        ops::Adamw{.parameter = parameter,
                   .master = master,
                   .m = m,
                   .v = v,
                   .gradient = gradient,
                   .step = step,
                   .norm = &norm});
    add("gradient_norm", 1, bytes(0, elements),
        [=, &s = stream_, sum = std::make_shared<ops::StreamSum>(device_)] {
          sum->add_squares(gradient, s);
        });
  }

  const session::Job& job_;
  const model::GptShape& shape_ = job_.shape;
  const DType dtype_;
  device::Device& device_;
  device::Stream& stream_;
  const ops::Options options_;
  const std::int64_t rows_ = job_.batch.micro_sequences * shape_.context;
  const double micro_steps_;
  const layout::Plan plan_;
  double gelu_forwards_ = 0, gelu_backwards_ = 0;  // of a step, apart from products
  nn::LinearShape head_;
  const device::Buffer first_sample_;  // for dropout
  std::vector<device::Buffer> buffers_;
};

}  // namespace

std::pair<std::string, Json> bench_ops(const session::Job& job,
                                       device::Device& device,
                                       comm::World& world,
                                       int repetitions) {
  const DType dtype = session::choose_dtype(job.run.precision, device, world);
  const int threads = omp_get_max_threads();
  // Of one rank: FLOP/s, FLOP/s in a block, and bytes/s.
  const double matrix_ceiling = measure_ceiling(job, job.shape, dtype, device, world);
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  const double block_flops = measure_blocks(dtype, device, world, threads);
  const std::size_t copied_bytes = bytes_to_stream(device, world);
  const double memory_ceiling = measure_memory(copied_bytes, device, world);
  Maker maker(job, dtype, device, *stream, world);
  maker.add_all();
  const auto seconds = race(maker.entrants, *stream, world, {.repetitions = repetitions});
  double step_s = 0, step_flops = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    OpsRow& row = maker.rows[i];
    row.seconds = seconds[i];
    step_s += row.per_step * row.seconds;
    step_flops += row.per_step * row.flops;
  }
  const double step_share = step_flops / step_s / matrix_ceiling;

  std::string table =
      fmt::format("{:<47}{:>9}{:>12}{:>11}{:>10}{:>10}{:>16}\n", "operation", "per step", "us",
                  "ms / step", "of step", "rate", "of its ceiling");
  Json json = {{"precision", name(dtype)},
               {"ranks", world.size()},
               {"threads", threads},
               {"matrix_ceiling_flops", matrix_ceiling},
               {"memory_ceiling_bytes_per_s", memory_ceiling},
               {"copied_bytes", copied_bytes},
               {"block_flops", block_flops},
               {"step_seconds", step_s},
               {"step_share", step_share},
               {"rows", Json::array()}};
  for (const OpsRow& row : maker.rows) {
    const double rate = (row.product ? row.flops : row.bytes) / row.seconds;
    const double share = rate / (row.product ? matrix_ceiling : memory_ceiling);
    table += fmt::format("{:<47}{:>9.0f}{:>12.1f}{:>11.2f}{:>8.2f} %{:>10.1f} {}{:>6.1f} %\n",
                         row.op, row.per_step, row.seconds * 1e6, row.per_step * row.seconds * 1e3,
                         100 * row.per_step * row.seconds / step_s, rate / 1e9,
                         row.product ? "GFLOP/s" : "GB/s   ", 100 * share);
    json["rows"].push_back({{"op", row.op},
                            {"per_step", row.per_step},
                            {"seconds", row.seconds},
                            {"bytes", row.bytes},
                            {"flops", row.flops},
                            {row.product ? "flops_per_s" : "bytes_per_s", rate},
                            {"share", share}});
  }
  if (std::ranges::any_of(maker.rows, [](const OpsRow& row) { return row.per_step == 0; }))
    table +=
        "0 per step: used with other values of gpu.fused_gelu, gpu.fused_gelu_backward, "
        "gpu.fused_bias_gradients or model.loss_rows\n";
  if (block_flops > 0)
    table += fmt::format("block of a product in the first-level cache: {:.1f} GFLOP/s\n",
                         block_flops / 1e9);
  table += fmt::format(
      "ceilings of one rank: {:.1f} GFLOP/s by the best product, {:.1f} GB/s over {} MiB ({}, {}, "
      "{} at a time); all operations of a step: {:.1f} ms, {:.1f} % of the GFLOP/s ceiling\n",
      matrix_ceiling / 1e9, memory_ceiling / 1e9, copied_bytes >> 20U, name(dtype),
      counted(threads, "thread"), counted(world.size(), "rank"), step_s * 1e3, 100 * step_share);
  return {table, json};
}

}  // namespace trireme::bench
