// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU: cuDNN's fused kernels for the shapes that suits_cudnn() names, our own for
// all others (ops/cuda/attention.hpp). When calls may have dropout, cuDNN computes the forward pass
// without it (evaluation) and the backward pass is always our own; both use the same lse.
//
// cuDNN's graphs are built at construction, which takes up to a second. What cuDNN refuses there or
// at a call is computed by our own kernels from then on, with a note for the log, unless
// AttentionOptions ask for cuDNN. The backward pass uses cuDNN's deterministic algorithm, whose
// workspace grows with B·H·T², unless AttentionOptions allow any order of the sums.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <cudnn.h>
#include <fmt/format.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
// We do not serialize graphs, and JSON costs a third of this file's compilation.
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // NOLINT(readability-identifier-naming)
#include <cudnn_frontend.h>
#pragma GCC diagnostic pop

#include "base/error.hpp"
#include "device/cuda/handle.hpp"

#include "ops/attention_backend.hpp"
#include "ops/cuda/attention.hpp"
#include "ops/cuda/nvrtc.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

namespace fe = cudnn_frontend;

void check(cudnnStatus_t status, const char* statement, int line) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw DeviceError("cuDNN", statement, cudnnGetErrorString(status), __FILE__, line);
}
void check(fe::error_t status, const char* statement, int line) {
  if (status.is_good())
    return;
  const std::string nvrtc = nvrtc_problem();
  throw DeviceError("cuDNN", statement, status.get_message() + (nvrtc.empty() ? "" : "; " + nvrtc),
                    __FILE__, line);
}
#define TRIREME_CUDNN(call) check((call), #call, __LINE__)

/// One per device.
struct Library {
  Library() { TRIREME_CUDNN(cudnnCreate(&handle)); }
  ~Library() { cudnnDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cudnnHandle_t handle = nullptr;
};

enum Uid : std::int64_t { q = 1, k, v, out, stats, dout, dq, dk, dv };
using Pointers = std::unordered_map<std::int64_t, void*>;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// One direction: cuDNN's graph and its memory.
class CudnnGraph {
 public:
  /// Throws DeviceError where cuDNN refuses the graph.
  CudnnGraph(device::Device& device,
             const AttentionShape& shape,
             const AttentionOptions& options,
             bool backward)
      : shape_(shape), options_(options), handle_(device::cuda::kept_with<Library>(device).handle) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (backward)
      describe_backward();
    else
      describe_forward();
    TRIREME_CUDNN(graph_.validate());
    TRIREME_CUDNN(graph_.build_operation_graph(handle_));
    TRIREME_CUDNN(graph_.create_execution_plans({fe::HeurMode_t::A}));
    TRIREME_CUDNN(graph_.check_support());
    TRIREME_CUDNN(graph_.build_plans());
    TRIREME_CUDNN(graph_.get_workspace_size(workspace_bytes_));
  }

  void allocate(device::Device& device, const char* what) {
    workspace_ = device.allocate(static_cast<std::size_t>(workspace_bytes_), what);
  }

  void run(Pointers& pointers, device::Stream& stream) {
    TRIREME_CUDNN(cudnnSetStream(handle_, device::cuda::handle_of(stream)));
    TRIREME_CUDNN(graph_.execute(handle_, pointers, workspace_.data()));
  }
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  /// [B, H, T, D] inside rows of `row` elements.
  Tensor tensor(Uid uid, const char* name, std::int64_t row) {
    const auto& s = shape_;
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({s.batch, s.heads, s.time, s.head_channels})
                             .set_stride({s.time * row, s.head_channels, row, 1}));
  }
  void output(const Tensor& made, Uid uid, std::int64_t row) {
    const auto& s = shape_;
    made->set_output(true)
        .set_uid(uid)
        .set_dim({s.batch, s.heads, s.time, s.head_channels})
        .set_stride({s.time * row, s.head_channels, row, 1});
  }
  [[nodiscard]] std::int64_t row() const { return shape_.heads * shape_.head_channels; }
  [[nodiscard]] float scale() const {
    return 1.0F / std::sqrt(static_cast<float>(shape_.head_channels));
  }
  [[nodiscard]] std::vector<std::int64_t> stats_dim() const {
    return {shape_.batch, shape_.heads, shape_.time, 1};
  }
  [[nodiscard]] std::vector<std::int64_t> stats_stride() const {
    return {shape_.heads * shape_.time, shape_.time, 1, 1};
  }

  void describe_forward() {
    const auto made = graph_.sdpa(tensor(Uid::q, "q", 3 * row()), tensor(Uid::k, "k", 3 * row()),
                                  tensor(Uid::v, "v", 3 * row()),
                                  fe::graph::SDPA_attributes()
                                      .set_name("attention")
                                      .set_generate_stats(true)
                                      .set_causal_mask(true)
                                      .set_attn_scale(scale()));
    output(made[0], Uid::out, row());
    made[1]
        ->set_output(true)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_uid(Uid::stats)
        .set_dim(stats_dim())
        .set_stride(stats_stride());
  }

  void describe_backward() {
    const Tensor saved = graph_.tensor(fe::graph::Tensor_attributes()
                                           .set_name("stats")
                                           .set_uid(Uid::stats)
                                           .set_data_type(fe::DataType_t::FLOAT)
                                           .set_dim(stats_dim())
                                           .set_stride(stats_stride()));
    const auto made =
        graph_.sdpa_backward(tensor(Uid::q, "q", 3 * row()), tensor(Uid::k, "k", 3 * row()),
                             tensor(Uid::v, "v", 3 * row()), tensor(Uid::out, "out", row()),
                             tensor(Uid::dout, "dout", row()), saved,
                             fe::graph::SDPA_backward_attributes()
                                 .set_name("attention_backward")
                                 .set_causal_mask(true)
                                 .set_attn_scale(scale())
                                 .set_deterministic_algorithm(options_.deterministic));
    output(made[0], Uid::dq, 3 * row());
    output(made[1], Uid::dk, 3 * row());
    output(made[2], Uid::dv, 3 * row());
  }

  const AttentionShape shape_;
  const AttentionOptions options_;
  const cudnnHandle_t handle_;
  fe::graph::Graph graph_;
  std::int64_t workspace_bytes_ = 0;
  device::Buffer workspace_;
};

class AttentionCuda final : public Attention::Implementation {
 public:
  AttentionCuda(device::Device& device, const AttentionShape& s, const AttentionOptions& options)
      : device_(device), options_(options), shape_(s), sizes_{s.batch,
                                                              s.time,
                                                              s.heads,
                                                              s.head_channels,
                                                              s.key_value_heads(),
                                                              s.window < s.time ? s.window : 0} {
    if (s.head_channels > cuda::most_head_channels)  // of a deck with run.device: auto
      throw UserError(fmt::format(
          "attention on a GPU supports heads of at most {} channels, not {}. Change model.heads or "
          "model.head_channels, or set run.device: cpu.",
          cuda::most_head_channels, s.head_channels));
    if (suits_cudnn(s, options)) {
      forward_ = build("forward");
      if (!s.drops)
        backward_ = build("backward");
    }
    if (!backward_)
      allocate_delta();
  }

  void forward(const AttentionForward& call, device::Stream& stream) override {
    if (forward_ && !call.dropout.active() && cudnn_forward(call, stream))
      return;
    const auto raw = device::cuda::handle_of(stream);
    if (suits_tiles(shape_)) {
      TRIREME_EXPECT(aligned({call.out.data, call.qkv.data}),
                     "attention of rows that are not aligned");
      cuda::tiled_attention_forward(call, sizes_, raw);
    } else if (shape_.dtype == DType::bf16) {
      cuda::attention_forward<Bf16>(call, sizes_, raw);
    } else {
      cuda::attention_forward<float>(call, sizes_, raw);
    }
  }

  void backward(const AttentionBackward& call, device::Stream& stream) override {
    if (backward_ && cudnn_backward(call, stream))
      return;
    const auto raw = device::cuda::handle_of(stream);
    float* delta = delta_.view(DType::f32).as<float>();
    if (suits_tiles(shape_)) {
      TRIREME_EXPECT(aligned({call.dqkv.data, call.dout.data, call.qkv.data, call.out.data}),
                     "attention of rows that are not aligned");
      cuda::tiled_attention_backward(call, delta, sizes_, raw);
    } else if (shape_.dtype == DType::bf16) {
      cuda::attention_backward<Bf16>(call, delta, sizes_, raw);
    } else {
      cuda::attention_backward<float>(call, delta, sizes_, raw);
    }
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return delta_.bytes() + (forward_ ? forward_->workspace_bytes() : 0) +
           (backward_ ? backward_->workspace_bytes() : 0);
  }

 private:
  /// Runs `work`, a call of cuDNN. False, with a note for the log, where cuDNN refuses it and the
  /// options allow our own kernels instead.
  template <class Work>
  bool attempt(const char* direction, const Work& work) {
    try {
      work();
      return true;
    } catch (const DeviceError& problem) {
      if (options_.kernels == AttentionKernels::cudnn)
        throw;
      device_.note(
          fmt::format("trireme's own kernels compute the {} pass of attention ({} x {} positions, "
                      "{} heads of {} channels), because cuDNN refuses it: {}",
                      direction, shape_.batch, shape_.time, shape_.heads, shape_.head_channels,
                      problem.what()));
      return false;
    }
  }

  /// Null where cuDNN refuses the graph.
  std::unique_ptr<CudnnGraph> build(const char* direction) {
    const bool is_backward = direction == std::string_view("backward");
    std::unique_ptr<CudnnGraph> graph;
    attempt(direction,
            [&] { graph = std::make_unique<CudnnGraph>(device_, shape_, options_, is_backward); });
    if (graph)  // a lack of memory is an error, not a refusal
      graph->allocate(device_, is_backward ? "attention backward" : "attention forward");
    return graph;
  }

  void allocate_delta() {
    delta_ = device_.allocate(
        static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.time) * sizeof(float),
        "attention backward");
  }

  bool cudnn_forward(const AttentionForward& call, device::Stream& stream) {
    Pointers pointers{{Uid::out, call.out.data}, {Uid::stats, call.lse.data}};
    add_qkv(pointers, Uid::q, const_cast<std::byte*>(call.qkv.data));
    const bool done = attempt("forward", [&] { forward_->run(pointers, stream); });
    if (!done)
      forward_.reset();
    return done;
  }

  bool cudnn_backward(const AttentionBackward& call, device::Stream& stream) {
    Pointers pointers{{Uid::out, const_cast<std::byte*>(call.out.data)},
                      {Uid::stats, const_cast<std::byte*>(call.lse.data)},
                      {Uid::dout, const_cast<std::byte*>(call.dout.data)}};
    add_qkv(pointers, Uid::q, const_cast<std::byte*>(call.qkv.data));
    add_qkv(pointers, Uid::dq, call.dqkv.data);
    const bool done = attempt("backward", [&] { backward_->run(pointers, stream); });
    if (!done) {
      backward_.reset();
      allocate_delta();
    }
    return done;
  }

  /// The three parts of a packed tensor under the uids `first` and the two after it.
  void add_qkv(Pointers& pointers, Uid first, std::byte* data) const {
    const auto part =
        static_cast<std::size_t>(shape_.heads * shape_.head_channels) * size_bytes(shape_.dtype);
    for (std::size_t i = 0; i < 3; ++i)
      pointers[first + static_cast<std::int64_t>(i)] = data + i * part;
  }

  static bool aligned(std::initializer_list<const std::byte*> addresses) {
    return std::ranges::all_of(addresses, [](const std::byte* address) {
      return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
    });
  }

  device::Device& device_;
  const AttentionOptions options_;
  const AttentionShape shape_;
  const cuda::AttentionSizes sizes_;
  // Not optionals, of whose members g++ 14 warns as uninitialized.
  std::unique_ptr<CudnnGraph> forward_, backward_;
  device::Buffer delta_;
};

}  // namespace

std::size_t cudnn_version() {
  return cudnnGetVersion();
}

std::unique_ptr<Attention::Implementation> make_attention_cuda(device::Device& device,
                                                               const AttentionShape& shape,
                                                               const AttentionOptions& options) {
  return std::make_unique<AttentionCuda>(device, shape, options);
}

}  // namespace trireme::ops
