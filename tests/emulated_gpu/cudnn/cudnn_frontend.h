// SPDX-License-Identifier: Apache-2.0
// A stand-in for cuDNN's front end, found in its place by builds for the emulated GPU: the classes
// and functions by which trireme asks for fused attention, with the real names and signatures.
// Sources: cudnn-frontend 1.18, graph_interface.h, graph_properties.h, sdpa_support_surface.h and
// scaled_dot_product_flash_attention.h; support matrix of cuDNN 9 for Hopper.
//
// 1. A graph holds one attention, forward or backward. The calls come in the documented order, from
//    validate() to execute(); another order is an error.
// 2. What the front end refuses is refused here with its words: dims and strides that are not four,
//    channels that are not dense, head sizes above 128 or no multiple of 8, backward of one
//    position, an uid twice, an uid missing at execute(). What this stand-in does not know (other
//    types, masks, cross attention) is refused as well.
// 3. Tensors are read and written through the dims and strides that they were given, nothing else:
//    a wrong stride is a wrong result, or memory that the address sanitizer knows not to be theirs.
//    Addresses are multiples of 16 bytes, which is what the front end tells cuDNN of all tensors.
// 4. execute() only enqueues, on the stream that the handle had then. What stood in the workspace is
//    lost, all of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace cudnn_frontend {

enum class DataType_t { NOT_SET, FLOAT, HALF, BFLOAT16 };
enum class HeurMode_t { A, B, FALLBACK };
enum class error_code_t {
  OK,
  ATTRIBUTE_NOT_SET,
  SHAPE_DEDUCTION_FAILED,
  INVALID_TENSOR_NAME,
  INVALID_VARIANT_PACK,
  GRAPH_NOT_SUPPORTED,
  CUDNN_BACKEND_API_FAILED,
  INVALID_VALUE
};

class [[nodiscard]] error_object {
 public:
  error_object() = default;
  error_object(error_code_t code, std::string words) : code_(code), words_(std::move(words)) {}
  [[nodiscard]] error_code_t get_code() const { return code_; }
  [[nodiscard]] std::string get_message() const { return words_; }
  [[nodiscard]] bool is_good() const { return code_ == error_code_t::OK; }
  [[nodiscard]] bool is_bad() const { return !is_good(); }

 private:
  error_code_t code_ = error_code_t::OK;
  std::string words_;
};
using error_t = error_object;

namespace graph {

// NOLINTBEGIN(readability-identifier-naming): the names are cuDNN's
class Tensor_attributes {
 public:
  Tensor_attributes& set_name(std::string value) { return set(name, std::move(value)); }
  Tensor_attributes& set_uid(std::int64_t value) { return set(uid, value); }
  Tensor_attributes& set_dim(std::vector<std::int64_t> value) { return set(dim, std::move(value)); }
  Tensor_attributes& set_stride(std::vector<std::int64_t> value) {
    return set(stride, std::move(value));
  }
  Tensor_attributes& set_data_type(DataType_t value) { return set(type, value); }
  Tensor_attributes& set_output(bool value) { return set(is_output, value); }

  // Read by the stand-in only.
  std::string name;
  std::optional<std::int64_t> uid;
  std::vector<std::int64_t> dim, stride;
  DataType_t type = DataType_t::NOT_SET;
  bool is_output = false;

 private:
  template <class Member, class Value>
  Tensor_attributes& set(Member& member, Value&& value) {
    member = std::forward<Value>(value);
    return *this;
  }
};

/// What both directions are told.
template <class Derived>
class Attention_attributes {
 public:
  Derived& set_name(std::string value) { return set(name, std::move(value)); }
  Derived& set_causal_mask(bool value) { return set(causal, value); }
  Derived& set_attn_scale(float value) { return set(scale, value); }

  std::string name;
  bool causal = false;
  std::optional<float> scale;

 protected:
  template <class Member, class Value>
  Derived& set(Member& member, Value&& value) {
    member = std::forward<Value>(value);
    return static_cast<Derived&>(*this);
  }
};

class SDPA_attributes : public Attention_attributes<SDPA_attributes> {
 public:
  SDPA_attributes& set_generate_stats(bool value) { return set(generates_stats, value); }
  std::optional<bool> generates_stats;
};

class SDPA_backward_attributes : public Attention_attributes<SDPA_backward_attributes> {
 public:
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) {
    return set(deterministic, value);
  }
  bool deterministic = false;
};

class Graph {
 public:
  using Tensor = std::shared_ptr<Tensor_attributes>;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Graph& set_io_data_type(DataType_t type);
  Graph& set_intermediate_data_type(DataType_t type);
  Graph& set_compute_data_type(DataType_t type);

  Tensor tensor(const Tensor_attributes& attributes);
  /// {O, stats}
  std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes attributes);
  /// {dQ, dK, dV}
  std::array<Tensor, 3> sdpa_backward(Tensor q,
                                      Tensor k,
                                      Tensor v,
                                      Tensor o,
                                      Tensor d_o,
                                      Tensor stats,
                                      SDPA_backward_attributes attributes);

  error_t validate();
  error_t build_operation_graph(cudnnHandle_t handle);
  error_t create_execution_plans(const std::vector<HeurMode_t>& modes);
  error_t check_support();
  error_t build_plans();
  error_t get_workspace_size(std::int64_t& bytes) const;
  error_t execute(cudnnHandle_t handle,
                  std::unordered_map<std::int64_t, void*>& addresses,
                  void* workspace) const;
  // NOLINTEND(readability-identifier-naming)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace graph
}  // namespace cudnn_frontend
