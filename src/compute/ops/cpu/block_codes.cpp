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

/// Calls body(first block, number of blocks) for chunks of `elements`.
template <class Body>
void for_blocks(std::int64_t elements, const Body& body) {
  for_chunks(elements / block_elements, blocks_per_chunk,
             [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
}

}  // namespace

template <class T>
void run(Threads, const EncodeBlocks& call) {
  auto* codes = call.codes.as<std::uint8_t>();
  const Coded all{codes, codes + call.values.elements, call.values.as<T>(),
                  call.error.as_optional<T>()};
  for_blocks(call.values.elements, [&](std::int64_t first, std::int64_t blocks) {
    const std::int64_t begin = first * block_elements;
    with_code(call.code, [&](auto code) {
      encode_kernel<decltype(code)>({all.codes + begin, all.scales + first, all.values + begin,
                                     all.error == nullptr ? nullptr : all.error + begin},
                                    blocks);
    });
  });
}

template <class T>
void run(Threads, const DecodeBlocks& call) {
  const auto* codes = call.codes.as<std::uint8_t>();
  for_blocks(call.sum.elements, [&](std::int64_t first, std::int64_t blocks) {
    const std::int64_t begin = first * block_elements;
    with_code(call.code, [&](auto code) {
      decode_kernel<decltype(code)>(call.sum.as<T>() + begin, codes + begin,
                                    codes + call.sum.elements + first, blocks, call.adds);
    });
  });
}

template void run<float>(Threads, const EncodeBlocks&);
template void run<float>(Threads, const DecodeBlocks&);

}  // namespace trireme::ops::cpu
