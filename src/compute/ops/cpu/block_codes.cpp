// SPDX-License-Identifier: Apache-2.0
#include "ops/block_codes.hpp"

#include <algorithm>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t blocks_per_chunk = elements_per_chunk / block_elements;

/// The operands of some consecutive blocks.
struct Coded {
  std::uint8_t *codes, *scales;
  const float* values;
  float* error;  // null: none
};

template <class Code>
TRIREME_CLONES void encode_kernel(Coded at, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, at.codes += block_elements) {
    alignas(64) float values[block_elements];
    const float* from = at.values + b * block_elements;
    float* error = at.error == nullptr ? nullptr : at.error + b * block_elements;
    for (std::int64_t i = 0; i < block_elements; ++i)
      values[i] = error == nullptr ? from[i] : from[i] + error[i];
    std::uint32_t largest = 0;
    for (const float value : values)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
    at.scales[b] = scale_of<Code>(largest);
    if (at.scales[b] == nan_scale) {
      std::fill_n(at.codes, block_elements, std::uint8_t{0});
      continue;
    }
    const float scale = scale_from(at.scales[b]), inverse = inverse_scale_from(at.scales[b]);
    for (std::int64_t i = 0; i < block_elements; ++i)
      at.codes[i] = Code::encode(values[i] * inverse);
    if (error != nullptr)
      for (std::int64_t i = 0; i < block_elements; ++i)
        error[i] = values[i] - Code::decode(at.codes[i]) * scale;
  }
}

template <class Code>
TRIREME_CLONES void decode_kernel(float* sum,
                                  const std::uint8_t* codes,
                                  const std::uint8_t* scales,
                                  std::int64_t blocks,
                                  bool adds) {
  for (std::int64_t b = 0; b < blocks; ++b, sum += block_elements, codes += block_elements) {
    const float scale = scale_from(scales[b]);
    for (std::int64_t i = 0; i < block_elements; ++i)
      sum[i] = (adds ? sum[i] : 0.0F) + Code::decode(codes[i]) * scale;
  }
}

}  // namespace

template <class T>
void run(Threads, const EncodeBlocks& call) {
  const std::int64_t n = call.values.elements;
  auto* codes = call.codes.as<std::uint8_t>();
  T* error = call.error.as_optional<T>();
  for_chunks(n / block_elements, blocks_per_chunk, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * block_elements;
    with_code(call.code, [&](auto code) {
      encode_kernel<decltype(code)>({codes + begin, codes + n + first, call.values.as<T>() + begin,
                                     error == nullptr ? nullptr : error + begin},
                                    last - first);
    });
  });
}

template <class T>
void run(Threads, const DecodeBlocks& call) {
  const std::int64_t n = call.sum.elements;
  const auto* codes = call.codes.as<std::uint8_t>();
  for_chunks(n / block_elements, blocks_per_chunk, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * block_elements;
    with_code(call.code, [&](auto code) {
      decode_kernel<decltype(code)>(call.sum.as<T>() + begin, codes + begin, codes + n + first,
                                    last - first, call.adds);
    });
  });
}

template void run<float>(Threads, const EncodeBlocks&);
template void run<float>(Threads, const DecodeBlocks&);

}  // namespace trireme::ops::cpu
