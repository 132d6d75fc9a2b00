// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.hpp"

#include "ops/calls/head_norm.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// Rows of `packed`, once it is seen that everything agrees.
std::int64_t rows_to_normalize(ConstView packed,
                               ConstView raw,
                               ConstView rstd,
                               ConstView query_gain,
                               ConstView key_gain,
                               ConstView table,
                               const HeadNormShape& shape) {
  const RotaryShape& s = shape.rows;
  TRIREME_EXPECT(s.heads >= 1 && s.head_channels >= 1 && s.time >= 1 && shape.query_heads >= 0 &&
                     shape.query_heads <= s.heads && s.heads * s.head_channels <= s.stride &&
                     packed.elements % s.stride == 0 && shape.epsilon > 0,
                 "{} elements to normalize: {} heads of {} in rows of {}", packed.elements, s.heads,
                 s.head_channels, s.stride);
  const std::int64_t rows = packed.elements / s.stride;
  const bool kept = !raw.empty() || !rstd.empty();
  TRIREME_EXPECT(!kept || (raw.elements == rows * s.heads * s.head_channels &&
                           raw.dtype == packed.dtype && rstd.elements == rows * s.heads),
                 "{} {} and {} deviations kept of {} rows of {} heads", raw.elements,
                 name(raw.dtype), rstd.elements, rows, s.heads);
  const bool gains = !query_gain.empty() || !key_gain.empty();
  for (const ConstView gain : {query_gain, key_gain})
    TRIREME_EXPECT(!gains || (gain.elements == s.head_channels && gain.dtype == packed.dtype),
                   "a gain of {} {} for heads of {}", gain.elements, name(gain.dtype),
                   s.head_channels);
  TRIREME_EXPECT(table.empty() || (s.head_channels % 2 == 0 && table.dtype == DType::f32 &&
                                   table.elements % s.head_channels == 0),
                 "a table of {} {} for heads of {}", table.elements, name(table.dtype),
                 s.head_channels);
  return rows;
}

template <class T>
HeadNormRows<T> of_views(ConstView query_gain,
                         ConstView key_gain,
                         ConstView table,
                         ConstView positions,
                         std::int64_t rows,
                         const HeadNormShape& shape) {
  return {.query_gain = pointer_or_null<T>(query_gain),
          .key_gain = pointer_or_null<T>(key_gain),
          .table = pointer_or_null<float>(table),
          .positions = pointer_or_null<std::int32_t>(positions),
          .rows = rows,
          .time = shape.rows.time,
          .heads = shape.rows.heads,
          .query_heads = shape.query_heads,
          .channels = shape.rows.head_channels,
          .stride = shape.rows.stride,
          .epsilon = shape.epsilon};
}

}  // namespace

void head_norm_forward(View packed,
                       View raw,
                       View rstd,
                       ConstView query_gain,
                       ConstView key_gain,
                       ConstView table,
                       ConstView positions,
                       const HeadNormShape& shape,
                       device::Stream& stream) {
  const std::int64_t rows =
      rows_to_normalize(packed, raw, rstd, query_gain, key_gain, table, shape);
  TRIREME_EXPECT(positions.empty() ? rows % shape.rows.time == 0
                                   : positions.elements == rows && positions.dtype == DType::i32,
                 "{} positions of {} rows in sequences of {}", positions.elements, rows,
                 shape.rows.time);
  TRIREME_EXPECT(table.empty() || !positions.empty() ||
                     table.elements >= shape.rows.time * shape.rows.head_channels,
                 "a table of {} for {} positions", table.elements, shape.rows.time);
  with_float_type(packed.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        HeadNormForward<T>{packed.as<T>(), pointer_or_null<T>(raw), pointer_or_null<float>(rstd),
                           of_views<T>(query_gain, key_gain, table, positions, rows, shape)},
        stream);
  });
}

void head_norm_backward(View d_packed,
                        View d_query_gain,
                        View d_key_gain,
                        ConstView raw,
                        ConstView rstd,
                        ConstView query_gain,
                        ConstView key_gain,
                        ConstView table,
                        const HeadNormShape& shape,
                        device::Stream& stream) {
  const std::int64_t rows =
      rows_to_normalize(d_packed, raw, rstd, query_gain, key_gain, table, shape);
  TRIREME_EXPECT(!raw.empty() && rows % shape.rows.time == 0, "{} rows in sequences of {}", rows,
                 shape.rows.time);
  TRIREME_EXPECT(table.empty() || table.elements >= shape.rows.time * shape.rows.head_channels,
                 "a table of {} for {} positions", table.elements, shape.rows.time);
  for (const View gradient : {d_query_gain, d_key_gain})
    TRIREME_EXPECT(gradient.elements == query_gain.elements, "{} gradients of a gain of {}",
                   gradient.elements, query_gain.elements);
  with_float_type(d_packed.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(HeadNormBackward<T>{d_packed.as<T>(), pointer_or_null<float>(d_query_gain),
                                pointer_or_null<float>(d_key_gain), raw.as<T>(), rstd.as<float>(),
                                of_views<T>(query_gain, key_gain, table, {}, rows, shape)},
            stream);
  });
}

}  // namespace trireme::ops
