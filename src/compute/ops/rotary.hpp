// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: pairs of channels of queries and keys are rotated by an angle that
// grows with the position, so that their products depend on distances alone. Source: Su et al.
// 2021, section 3.4; in the halves form of transformers, where channel j is rotated together with
// channel j + D/2:
//
//   y[j]       = x[j] cos a - x[j + D/2] sin a        a = position · f[j],  j < D/2
//   y[j + D/2] = x[j + D/2] cos a + x[j] sin a        f[j] = theta^(-2j/D), scaled
//
// Backward rotates the gradient by -a. Both work in place.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/operation.hpp"

namespace trireme::ops {

/// Which frequencies are divided by the factor:
///   llama3  those with at most low_freq_factor rotations within the original context, and none with
///           high_freq_factor or more. Those between are mixed by their rotations. Source: the
///           published code, llama_models/llama3/model.py, apply_scaling.
///   yarn    the same with beta_slow and beta_fast rotations, mixed by the channel. Source: Peng et
///           al. 2023, section 3.2, with channels rounded as in transformers.
///   linear  all
enum class RotaryScalingType : std::uint8_t { llama3, yarn, linear };
struct RotaryScaling {
  double factor = 1;  ///< 1: none
  double low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_context = 8192;
  RotaryScalingType type = RotaryScalingType::llama3;
  double beta_slow = 1, beta_fast = 32;
  double attention_factor = 1;  ///< of queries and of keys: multiplies sines and cosines

  [[nodiscard]] bool active() const { return factor != 1; }
  bool operator==(const RotaryScaling&) const = default;
};

/// f[j], for j below head_channels / 2.
std::vector<double> rotary_frequencies(std::int64_t head_channels,
                                       double theta,
                                       const RotaryScaling& scaling);

/// The table of the positions [0, positions), computed in double precision.
std::vector<float> rotary_table(std::int64_t positions,
                                std::int64_t head_channels,
                                double theta,
                                const RotaryScaling& scaling);

enum class Direction : bool { forward, inverse };

struct RotaryShape {
  std::int64_t time = 0;           ///< positions of a sequence, for rows without `positions`
  std::int64_t heads = 0;          ///< that are rotated: those of queries and of keys
  std::int64_t head_channels = 0;  ///< D, even
  std::int64_t stride = 0;         ///< elements of a row, heads · D or more
};

/// The cosines of row `row`; its sines are D/2 after them. `table` and `positions` as in Rotate.
TRIREME_HOST_DEVICE inline const float* angles_of(std::int64_t row,
                                                  ConstView table,
                                                  ConstView positions,
                                                  const RotaryShape& shape) {
  const std::int64_t at = positions.empty() ? row % shape.time : positions.as<std::int32_t>()[row];
  return table.as<float>() + at * shape.head_channels;
}

/// In place, of the first heads · D elements of each row. Bodies: head_norm.cpp and head_norm.cu.
struct Rotate {
  static constexpr const char* name = "rotate";
  View packed;               ///< [rows, stride] of T
  ConstView table;           ///< [positions, 2, D/2] fp32, cosines and then sines: rotary_table()
  ConstView positions = {};  ///< [rows] int32; optional: row r is at position r mod time
  RotaryShape shape;
  Direction direction = Direction::forward;
};
TRIREME_OPERATION(Rotate);

}  // namespace trireme::ops
