// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/onednn/library_matmul.hpp"

#include <string>
#include <unordered_map>

#include <dnnl.hpp>
#include <fmt/format.h>

#include "base/error.hpp"

#include "ops/cpu/onednn/onednn.hpp"

namespace trireme::ops {
namespace {

using dnnl::memory;

memory::desc matrix(
    std::int64_t rows, std::int64_t columns, DType dtype, bool transposed, bool any = false) {
  if (any)
    return {{rows, columns}, onednn_type(dtype), memory::format_tag::any};
  return {{rows, columns},
          onednn_type(dtype),
          transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

dnnl::matmul::primitive_desc choose(const MatmulShape& s, bool packed, const dnnl::engine& engine) {
  const memory::desc a = matrix(s.m, s.k, s.a, s.a_transposed);
  const memory::desc b = matrix(s.k, s.n, s.b, s.b_transposed, packed);
  const memory::desc c = matrix(s.m, s.n, s.c, false);
  dnnl::primitive_attr attributes;
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const memory::desc bias = matrix(1, s.n, s.b, false);
  return onednn_product(engine, a, b, s.bias ? &bias : nullptr, c, attributes);
}

}  // namespace

struct LibraryMatmul::Inside {
  explicit Inside(const MatmulShape& given, bool packed)
      : shape(given),
        engine(dnnl::engine::kind::cpu, 0),
        stream(engine),
        chosen(choose(given, packed, engine)),
        primitive(chosen),
        a(chosen.src_desc(), engine, nullptr),
        b(chosen.weights_desc(), engine, nullptr),
        c(chosen.dst_desc(), engine, nullptr) {
    if (given.bias)
      bias = memory(matrix(1, given.n, given.b, false), engine, nullptr);
    arguments = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
    if (given.bias)
      arguments.emplace(DNNL_ARG_BIAS, bias);
  }

  MatmulShape shape;
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul::primitive_desc chosen;
  dnnl::matmul primitive;
  memory a, b, c, bias;
  device::Buffer own_b;
  std::unordered_map<int, memory> arguments;
  device::Device* device = nullptr;
};

LibraryMatmul::LibraryMatmul(device::Device& device, const MatmulShape& shape, bool packed) {
  if (device.kind() != device::Kind::cpu)
    throw DeviceError(device.description(), "matrix library", "it is the CPU's", __FILE__,
                      __LINE__);
  try {
    inside_ = std::make_unique<Inside>(shape, packed);
  } catch (const dnnl::error& error) {
    throw DeviceError(
        fmt::format("oneDNN {}", onednn_version()),
        fmt::format("matmul {} x {} x {} of {}", shape.m, shape.n, shape.k, name(shape.a)),
        error.what(), __FILE__, __LINE__);
  }
  inside_->device = &device;
}
LibraryMatmul::~LibraryMatmul() = default;

void LibraryMatmul::prepare(ConstView b) {
  Inside& in = *inside_;
  const MatmulShape& s = in.shape;
  TRIREME_EXPECT(b.elements == s.k * s.n && b.dtype == s.b, "B is {} {}, not {} x {} {}",
                 b.elements, name(b.dtype), s.k, s.n, name(s.b));
  const memory::desc plain = matrix(s.k, s.n, s.b, s.b_transposed);
  auto* data = const_cast<std::byte*>(b.data);
  if (in.chosen.weights_desc() == plain) {
    in.b.set_data_handle(data);
    return;
  }
  if (in.own_b.bytes() == 0)
    in.own_b = in.device->allocate(in.chosen.weights_desc().get_size(), "a packed matrix");
  in.b.set_data_handle(in.own_b.data());
  memory from(plain, in.engine, data);
  dnnl::reorder(from, in.b).execute(in.stream, from, in.b);
  in.stream.wait();
}

void LibraryMatmul::operator()(ConstView a, ConstView bias, View c) const {
  Inside& in = *inside_;
  in.a.set_data_handle(const_cast<std::byte*>(a.data));
  in.c.set_data_handle(c.data);
  if (in.shape.bias)
    in.bias.set_data_handle(const_cast<std::byte*>(bias.data));
  in.primitive.execute(in.stream, in.arguments);
  in.stream.wait();
}

const char* LibraryMatmul::kernel() const {
  return inside_->chosen.impl_info_str();
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
