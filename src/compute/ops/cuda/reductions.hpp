// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of reductions.hpp and order_free_sum.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cuda/raw_stream.hpp"

#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

struct Values {
  const float* at;
  std::int64_t count;
};

/// Arrays in one launch.
inline constexpr std::size_t most_searched = 64, most_summed = 64;

/// Writes to first[i], memory that the GPU can access, the index in values[i] or -1, in one launch;
/// -1 if `norm` is not null and is finite. Workspace: 8 bytes per array.
void find_not_finite(std::int64_t* first,
                     std::span<const Values> values,
                     std::byte* workspace,
                     const GradientNorm* norm,
                     RawStream stream);

/// Writes to `hash` the sum of element_hash over `count` elements of `width` (2 or 4) bytes.
/// Workspace: 8 bytes.
void hash_elements(std::uint64_t* hash,
                   const std::byte* values,
                   std::size_t width,
                   std::int64_t count,
                   std::byte* workspace,
                   RawStream stream);

/// Adds squares of values, or the values, to the words of an OrderFreeSum on the GPU, in one
/// launch. An addition changes a word by less than 2^32; carry() puts words back into [0, 2^32).
void add_to_words(std::int64_t* words,
                  std::span<const Values> values,
                  bool squared,
                  RawStream stream);
void carry(std::int64_t* words, RawStream stream);
/// Adds the words of one sum, carried, to those of another.
void add_words(std::int64_t* words, const std::int64_t* other, RawStream stream);
/// All pointers are to GPU memory.
void values_of_words(double* values,
                     const std::int64_t* words,
                     std::int64_t count,
                     RawStream stream);
void gradient_norm(GradientNorm* norm,
                   const double* squares,
                   const Clipping& clipping,
                   RawStream stream);

}  // namespace trireme::ops::cuda
