// SPDX-License-Identifier: Apache-2.0
// oneDNN's word for our types, for the files that call it.
#pragma once

#include <dnnl.hpp>

#include "base/dtype.hpp"

namespace trireme::ops {

inline dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace trireme::ops
