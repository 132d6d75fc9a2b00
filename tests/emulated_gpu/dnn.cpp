// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <unordered_set>

#include <cudnn_frontend.h>

#include "emulated_gpu/device.hpp"
#include "emulated_gpu/dnn_attention.hpp"
#include "emulated_gpu/queue.hpp"
#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/touch.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

extern "C" {

size_t cudnnGetVersion(void) {
  return emulated::cudnn_version();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr)
    return CUDNN_STATUS_BAD_PARAM;
  if (emulated::injects("TRIREME_EMULATED_CUDNN_REFUSES", "create"))
    return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr)
    return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS     ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
                                            : "CUDNN_UNKNOWN_STATUS";
}

}  // extern "C"

namespace cudnn_frontend::graph {
namespace {

error_t refuse(const char* words) {
  return {error_code_t::GRAPH_NOT_SUPPORTED, words};
}

error_t injected_at(const char* name) {
  if (!emulated::injects("TRIREME_EMULATED_CUDNN_REFUSES", name))
    return {};
  return {error_code_t::CUDNN_BACKEND_API_FAILED,
          std::string("CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE (injected into ") + name +
              ")"};
}

using Dims = std::array<std::int64_t, 4>;

Dims four(const std::vector<std::int64_t>& from) {
  return {from[0], from[1], from[2], from[3]};
}

}  // namespace

struct Graph::State {
  enum class Stage { described, validated, lowered, planned, supported, built };

  Stage stage = Stage::described;
  DataType_t io = DataType_t::NOT_SET, intermediate = DataType_t::NOT_SET,
             compute = DataType_t::NOT_SET;
  int operations = 0;
  bool is_backward = false, causal = false, deterministic = false;
  std::optional<bool> generates_stats;
  std::optional<float> scale;
  Tensor q, k, v, out, stats;  // both directions
  Tensor dout, dq, dk, dv;     // backward

  error_t pass(Stage from, Stage to, const char* name) {
    if (error_t injected = injected_at(name); injected.is_bad())
      return injected;
    if (stage != from)
      return {error_code_t::INVALID_VALUE, "a step of building the graph out of its order"};
    stage = to;
    return {};
  }

  template <class Attributes>
  void take(const Attributes& attributes, bool backward) {
    ++operations;
    is_backward = backward;
    causal = attributes.causal;
    scale = attributes.scale;
  }

  [[nodiscard]] std::vector<Tensor> tensors() const {
    std::vector<Tensor> all{q, k, v, out, stats};
    if (is_backward)
      all.insert(all.end(), {dout, dq, dk, dv});
    return all;
  }

  /// Inputs, outputs and stats have the graph's type unless set otherwise.
  [[nodiscard]] DataType_t type_of(const Tensor& tensor) const {
    return tensor->type == DataType_t::NOT_SET ? io : tensor->type;
  }

  [[nodiscard]] error_t examine_tensor(const Tensor& tensor) const {
    const std::string& name = tensor->name;
    if (tensor->dim.size() != 4)
      return {error_code_t::ATTRIBUTE_NOT_SET, "The dim for " + name + " is invalid"};
    if (tensor->stride.size() != 4)
      return {error_code_t::ATTRIBUTE_NOT_SET, "The stride for " + name + " is invalid"};
    if (tensor->stride[3] != 1)
      return {error_code_t::GRAPH_NOT_SUPPORTED,
              "The stride for the last dimension corresponding to the embedding size per head "
              "should be 1 for " +
                  name};
    if (!tensor->uid)
      return {error_code_t::ATTRIBUTE_NOT_SET, "no uid for " + name};
    const bool is_stats = tensor == stats;
    if (type_of(tensor) != (is_stats ? DataType_t::FLOAT : DataType_t::BFLOAT16))
      return {error_code_t::GRAPH_NOT_SUPPORTED, "the type of " + name + " is not known here"};
    Dims expected = four(q->dim);
    if (is_stats)
      expected[3] = 1;
    if (four(tensor->dim) != expected)
      return {error_code_t::GRAPH_NOT_SUPPORTED, "the dim of " + name + " is not that of q"};
    const bool is_made = is_backward ? tensor == dq || tensor == dk || tensor == dv
                                     : tensor == out || tensor == stats;
    if (is_made != tensor->is_output)
      return {error_code_t::ATTRIBUTE_NOT_SET, "set_output of " + name};
    return {};
  }

  [[nodiscard]] error_t examine() const {
    if (operations != 1)
      return refuse("a graph of one attention is what is known here");
    if (compute != DataType_t::FLOAT)
      return refuse("the compute type has to be FLOAT");
    if (intermediate == DataType_t::NOT_SET)
      return {error_code_t::ATTRIBUTE_NOT_SET,
              "Intermediate tensor data type needs to be set as internal tensors require it."};
    if (!is_backward && !generates_stats)
      return {error_code_t::ATTRIBUTE_NOT_SET, "generate_stats attribute not set"};
    if (!causal || !scale || (!is_backward && !*generates_stats))
      return refuse("attention without a causal mask, a scale and stats: not known here");
    std::unordered_set<std::int64_t> uids;
    for (const Tensor& tensor : tensors()) {
      if (tensor == nullptr)
        return {error_code_t::ATTRIBUTE_NOT_SET, "a tensor of the attention is missing"};
      if (error_t found = examine_tensor(tensor); found.is_bad())
        return found;
      if (!uids.insert(*tensor->uid).second)
        return {error_code_t::INVALID_VALUE, "uid " + std::to_string(*tensor->uid) +
                                                 " for tensor named " + tensor->name +
                                                 " has been used already"};
    }
    const std::int64_t time = q->dim[2], channels = q->dim[3];
    if (channels % 8 != 0)
      return refuse("hidden_dim should be multiple of 8");
    if (is_backward && time == 1)
      return refuse("s_q = s_kv = 1 is not supported.");
    return {};
  }

  /// Backward needs row sums in fp32. The deterministic one needs dP in bf16 with the time rounded
  /// up to 64, the other one dQ in fp32.
  [[nodiscard]] std::int64_t workspace_bytes() const {
    if (!is_backward)
      return 0;
    const std::int64_t heads = q->dim[0] * q->dim[1], time = q->dim[2];
    const std::int64_t rounded = (time + 63) / 64 * 64;
    return heads * time * 4 +
           (deterministic ? heads * rounded * rounded * 2 : heads * time * q->dim[3] * 4);
  }
};

Graph::Graph() : state_(std::make_unique<State>()) {}
Graph::~Graph() = default;

Graph& Graph::set_io_data_type(DataType_t type) {
  state_->io = type;
  return *this;
}
Graph& Graph::set_intermediate_data_type(DataType_t type) {
  state_->intermediate = type;
  return *this;
}
Graph& Graph::set_compute_data_type(DataType_t type) {
  state_->compute = type;
  return *this;
}

Graph::Tensor Graph::tensor(const Tensor_attributes& attributes) {
  return std::make_shared<Tensor_attributes>(attributes);
}

std::array<Graph::Tensor, 2> Graph::sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes attributes) {
  State& s = *state_;
  s.take(attributes, false);
  s.generates_stats = attributes.generates_stats;
  s.q = std::move(q);
  s.k = std::move(k);
  s.v = std::move(v);
  s.out = tensor(Tensor_attributes().set_name(attributes.name + "::O"));
  s.stats = tensor(Tensor_attributes().set_name(attributes.name + "::Stats"));
  return {s.out, s.stats};
}

std::array<Graph::Tensor, 3> Graph::sdpa_backward(Tensor q,
                                                  Tensor k,
                                                  Tensor v,
                                                  Tensor o,
                                                  Tensor d_o,
                                                  Tensor stats,
                                                  SDPA_backward_attributes attributes) {
  State& s = *state_;
  s.take(attributes, true);
  s.deterministic = attributes.deterministic;
  s.q = std::move(q);
  s.k = std::move(k);
  s.v = std::move(v);
  s.out = std::move(o);
  s.dout = std::move(d_o);
  s.stats = std::move(stats);
  s.dq = tensor(Tensor_attributes().set_name(attributes.name + "::dQ"));
  s.dk = tensor(Tensor_attributes().set_name(attributes.name + "::dK"));
  s.dv = tensor(Tensor_attributes().set_name(attributes.name + "::dV"));
  return {s.dq, s.dk, s.dv};
}

error_t Graph::validate() {
  if (error_t found = state_->examine(); found.is_bad())
    return found;
  return state_->pass(State::Stage::described, State::Stage::validated, "validate");
}

error_t Graph::build_operation_graph(cudnnHandle_t handle) {
  if (handle == nullptr)
    return {error_code_t::INVALID_VALUE, "no handle"};
  return state_->pass(State::Stage::validated, State::Stage::lowered, "build_operation_graph");
}

error_t Graph::create_execution_plans(const std::vector<HeurMode_t>& modes) {
  if (modes.empty())
    return {error_code_t::INVALID_VALUE, "no heuristics to ask"};
  return state_->pass(State::Stage::lowered, State::Stage::planned, "create_execution_plans");
}

error_t Graph::check_support() {
  // Newer releases allow "d <= 256" on Hopper; all of cuDNN 9 allows 128 on every GPU.
  if (state_->stage == State::Stage::planned && state_->q->dim[3] > 128)
    return refuse("Num hidden_dim should be less than or equal to 128");
  return state_->pass(State::Stage::planned, State::Stage::supported, "check_support");
}

error_t Graph::build_plans() {
  return state_->pass(State::Stage::supported, State::Stage::built, "build_plans");
}

error_t Graph::get_workspace_size(std::int64_t& bytes) const {
  if (state_->stage != State::Stage::built)
    return {error_code_t::INVALID_VALUE, "the workspace of a graph without plans"};
  bytes = state_->workspace_bytes();
  return {};
}

error_t Graph::execute(cudnnHandle_t handle,
                       std::unordered_map<std::int64_t, void*>& addresses,
                       void* workspace) const {
  if (error_t injected = injected_at("execute"); injected.is_bad())
    return injected;
  const State& s = *state_;
  if (s.stage != State::Stage::built || handle == nullptr)
    return {error_code_t::INVALID_VALUE, "a graph without plans, or without a handle"};
  for (const Tensor& tensor : s.tensors()) {
    const auto found = addresses.find(*tensor->uid);
    if (found == addresses.end() || found->second == nullptr)
      return {error_code_t::INVALID_VARIANT_PACK,
              "Variant pack expected uid " + std::to_string(*tensor->uid) + " but not found."};
    if (reinterpret_cast<std::uintptr_t>(found->second) % 16 != 0)
      return {error_code_t::INVALID_VARIANT_PACK, tensor->name + " is not aligned to 16 bytes"};
    if (!emulated::reaches(found->second))
      return {error_code_t::INVALID_VARIANT_PACK, tensor->name + " is where no GPU reaches"};
  }
  const auto bytes = static_cast<std::size_t>(s.workspace_bytes());
  if (bytes > 0 && workspace == nullptr)
    return {error_code_t::INVALID_VARIANT_PACK, "no workspace"};
  const auto at = [&](const Tensor& t) {
    return emulated::dnn::Tensor{addresses.at(*t->uid), four(t->dim), four(t->stride)};
  };
  const auto work =
      s.is_backward ? std::function<void()>(
                          [g = emulated::dnn::Backward{at(s.q), at(s.k), at(s.v), at(s.out),
                                                       at(s.dout), at(s.stats), at(s.dq), at(s.dk),
                                                       at(s.dv), *s.scale, s.deterministic},
                           workspace, bytes] {
                            emulated::touch(workspace, bytes, "workspace of an attention");
                            std::memset(workspace, 0xff, bytes);  // NaN
                            emulated::dnn::backward(g);
                          })
                    : [f = emulated::dnn::Forward{at(s.q), at(s.k), at(s.v), at(s.out), at(s.stats),
                                                  *s.scale}] { emulated::dnn::forward(f); };
  if (emulated::enqueue(handle->stream, "cuDNN attention", work) != cudaSuccess)
    return {error_code_t::CUDNN_BACKEND_API_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"};
  return {};
}

}  // namespace cudnn_frontend::graph
