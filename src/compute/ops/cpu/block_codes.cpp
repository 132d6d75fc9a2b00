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

TRIREME_CLONES void encode_largest_kernel(
    const float* values, float* error, std::uint32_t* words, int kept, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, values += block_elements) {
    alignas(64) float sums[block_elements];
    alignas(64) std::uint32_t keys[block_elements];
    for (std::uint32_t i = 0; i < block_elements; ++i) {
      sums[i] = error == nullptr ? values[i] : values[i] + error[b * block_elements + i];
      keys[i] = PlacedValue::key(sums[i], i);
    }
    bool finite = true;
    for (int k = 0; k < kept; ++k, ++words) {
      std::uint32_t largest = 0;
      for (const std::uint32_t key : keys) largest = std::max(largest, key);
      finite = finite && is_finite_key(largest);
      const std::uint32_t place = PlacedValue::place_of_key(largest);
      keys[place] = 0;
      *words = PlacedValue::encode(sums[place], place);
      sums[place] -= PlacedValue::decode(*words);
    }
    if (error != nullptr && finite)
      std::copy_n(sums, block_elements, error + b * block_elements);
  }
}

TRIREME_CLONES void decode_largest_kernel(
    float* sum, const std::uint32_t* words, int kept, std::int64_t blocks, bool adds) {
  for (std::int64_t b = 0; b < blocks; ++b, sum += block_elements) {
    if (!adds)
      std::fill_n(sum, block_elements, 0.0F);
    for (int k = 0; k < kept; ++k, ++words)
      sum[*words & PlacedValue::places] += PlacedValue::decode(*words);
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
    if (const int kept = kept_values(call.code); kept < block_elements)
      return encode_largest_kernel(call.values.as<T>() + begin,
                                   error == nullptr ? nullptr : error + begin,
                                   words_of(call.codes) + first * kept, kept, last - first);
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
    if (const int kept = kept_values(call.code); kept < block_elements)
      return decode_largest_kernel(call.sum.as<T>() + begin, words_of(call.codes) + first * kept,
                                   kept, last - first, call.adds);
    with_code(call.code, [&](auto code) {
      decode_kernel<decltype(code)>(call.sum.as<T>() + begin, codes + begin, codes + n + first,
                                    last - first, call.adds);
    });
  });
}

template void run<float>(Threads, const EncodeBlocks&);
template void run<float>(Threads, const DecodeBlocks&);

}  // namespace trireme::ops::cpu
