// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/onednn/library_matmul.hpp"

#include <memory>
#include <unordered_map>

#include <dnnl.hpp>
#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::ops {
namespace {

using dnnl::memory;

memory::desc matrix(
    std::int64_t rows, std::int64_t columns, DType dtype, bool transposed, bool any = false) {
  const auto type = dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  if (any)
    return {{rows, columns}, type, memory::format_tag::any};
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

/// How the product is computed. Throws dnnl::error where the library has no kernel for it.
dnnl::matmul::primitive_desc choose(const MatmulShape& s, bool packed, const dnnl::engine& engine) {
  const memory::desc a = matrix(s.m, s.k, s.a, s.a_transposed);
  const memory::desc b = matrix(s.k, s.n, s.b, s.b_transposed, packed);
  const memory::desc c = matrix(s.m, s.n, s.c, false), bias = matrix(1, s.n, s.b, false);
  dnnl::primitive_attr attributes;
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  if (s.bias)
    return {engine, a, b, bias, c, attributes};
  return {engine, a, b, c, attributes};
#else  // from 2.6
  if (s.bias)
    return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace

LibraryMatmul make_library_matmul(device::Device& device,
                                  const MatmulShape& s,
                                  bool packed,
                                  ConstView b) {
  if (device.kind() != device::Kind::cpu)
    throw DeviceError(device.description(), "matrix library", "it is the CPU's");
  TRIREME_EXPECT(b.elements == s.k * s.n && b.dtype == s.b, "B is {} {}, not {} x {} {}",
                 b.elements, name(b.dtype), s.k, s.n, name(s.b));
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const auto chosen = choose(s, packed, engine);
    const auto at = [engine](const memory::desc& desc, ConstView view) {
      return memory(desc, engine, const_cast<std::byte*>(view.data));
    };
    memory of_b = at(matrix(s.k, s.n, s.b, s.b_transposed), b);
    auto copied = std::make_shared<device::Buffer>();
    if (chosen.weights_desc() != of_b.get_desc()) {
      *copied = device.allocate(chosen.weights_desc().get_size(), "a packed matrix");
      memory own(chosen.weights_desc(), engine, copied->data());
      dnnl::reorder(of_b, own).execute(stream, of_b, own);
      stream.wait();
      of_b = own;
    }
    const auto multiply = [=, kept = copied, product = dnnl::matmul(chosen)](
                              ConstView a, ConstView bias, View c) {
      dnnl::stream on = stream;
      std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(chosen.src_desc(), a)},
                                                {DNNL_ARG_WEIGHTS, of_b},
                                                {DNNL_ARG_DST, at(chosen.dst_desc(), c)}};
      if (s.bias)
        arguments.emplace(DNNL_ARG_BIAS, at(matrix(1, s.n, s.b, false), bias));
      product.execute(on, arguments);
      on.wait();
    };
    return {multiply, chosen.impl_info_str()};
  } catch (const dnnl::error& error) {
    throw DeviceError(fmt::format("oneDNN {}", onednn_version()),
                      fmt::format("matmul {} x {} x {} of {}", s.m, s.n, s.k, name(s.a)),
                      error.what());
  }
}

bool library_multiplies(DType dtype) {
  try {
    choose({.m = 2, .n = 2, .k = 2, .a = dtype, .b = dtype, .c = dtype}, false,
           dnnl::engine(dnnl::engine::kind::cpu, 0));
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

const char* onednn_version() {
  static const std::string text = [] {
    const auto* version = dnnl_version();
    return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  }();
  return text.c_str();
}

}  // namespace trireme::ops
