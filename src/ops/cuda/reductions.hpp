// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of finite.hpp, hash.hpp, order_free_sum.hpp and gradient_norm.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

/// Bytes of workspace that find_not_finite needs.
inline constexpr std::size_t find_not_finite_bytes = 1024 * sizeof(std::int64_t);
/// Writes to `first`, memory that the GPU reaches, the index or -1. Where `norm` is not null and is
/// finite, it writes nothing.
void find_not_finite(std::int64_t* first,
                     const float* values,
                     std::int64_t count,
                     std::byte* workspace,
                     const GradientNorm* norm,
                     RawStream stream);

/// Writes to `hash` the sum of element_hash over `count` elements of `width` (2 or 4) bytes. Takes
/// as much workspace as find_not_finite.
void hash_elements(std::uint64_t* hash,
                   const std::byte* values,
                   std::size_t width,
                   std::int64_t count,
                   std::byte* workspace,
                   RawStream stream);

/// Adds squares of values, or the values, to the words of an OrderFreeSum on the GPU. An addition
/// changes a word by less than 2^32; carry() puts words back into [0, 2^32).
void add_to_words(
    std::int64_t* words, const float* values, std::int64_t count, bool squared, RawStream stream);
void carry(std::int64_t* words, RawStream stream);
/// All of these lie on the GPU.
void values_of_words(double* values,
                     const std::int64_t* words,
                     std::int64_t count,
                     RawStream stream);
void gradient_norm(GradientNorm* norm,
                   const double* squares,
                   const Clipping& clipping,
                   RawStream stream);

}  // namespace trireme::ops::cuda
