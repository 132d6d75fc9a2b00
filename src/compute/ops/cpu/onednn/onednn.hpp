// SPDX-License-Identifier: Apache-2.0
// oneDNN's names of our types, and what its versions 2 (from 2.6) and 3 write differently, for the
// files that call it. Everything else that those call is the same in both.
#pragma once

#include <dnnl.hpp>

#include "base/dtype.hpp"

namespace trireme::ops {

inline dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// How `c` = `a` x `b` will be computed, plus `bias` unless that is null. Throws dnnl::error where
/// the library has no kernel for it.
inline dnnl::matmul::primitive_desc onednn_product(const dnnl::engine& engine,
                                                   const dnnl::memory::desc& a,
                                                   const dnnl::memory::desc& b,
                                                   const dnnl::memory::desc* bias,
                                                   const dnnl::memory::desc& c,
                                                   const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias != nullptr)
    return {engine, a, b, *bias, c, attributes};
  return {engine, a, b, c, attributes};
#else
  if (bias != nullptr)
    return {dnnl::matmul::desc(a, b, *bias, c), attributes, engine};
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace trireme::ops
