// SPDX-License-Identifier: Apache-2.0
// The context of every layer during one call of Gpt (model/gpt.hpp) or Decoder (model/decoder.hpp).
//
// Layers own neither parameters nor memory, and store no views. A Call converts a ParameterIndex to
// the view that is currently bound, and a Slot (activations.hpp) to a view for this batch.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "base/view.hpp"
#include "device/buffer.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "nn/activations.hpp"
#include "nn/hooks.hpp"
#include "nn/registry.hpp"
#include "ops/dropout.hpp"

namespace trireme::nn {

/// The views of all parameters, in registration order; gradients may be empty.
struct Bound {
  DType dtype = DType::f32;
  std::vector<ConstView> values;
  std::vector<View> gradients;
};

/// Sequence and position of each row in the cache (ops/cached_attention.hpp), [rows] int32 each.
struct CachePositions {
  ConstView sequences, positions;
};

struct Call {
  const Bound& bound;
  const ActivationPlan& plan;
  const device::Buffer& memory;  ///< plan.bytes()
  device::ScratchPool& pool;
  Hooks& hooks;
  device::Stream& stream;
  std::int64_t sequences = 0;
  std::int64_t context = 0;
  std::size_t size = 0;  ///< index of the prepared batch size (kernels.hpp)
  bool training = false;
  bool report = false;     ///< call gradient_ready
  ops::Dropout dropout{};  ///< rate, key and first sample; each layer sets its site
  View narrow{}, wide{};   ///< scratch, as large as planned
  /// Not null while decoding: context is 1, and the layers' caches contain the earlier positions.
  const CachePositions* cached = nullptr;
  /// With a document mask: the position where the document of each row begins, [rows] int32
  /// (DocumentStarts in ops/elementwise.hpp). Empty: no mask.
  ConstView document_starts{nullptr, 0, DType::i32};

  [[nodiscard]] std::int64_t rows() const { return sequences * context; }
  [[nodiscard]] View view(const Slot& slot) const {
    return {memory.data() + (training ? slot.offset : slot.evaluation_offset),
            slot.elements * sequences, slot.dtype};
  }
  /// The view of a Slot from Planner::retain_always.
  [[nodiscard]] View whole(const Slot& slot) const {
    return {memory.data() + slot.offset, slot.elements, slot.dtype};
  }
  /// Positions of the rows while decoding; empty: whole sequences.
  [[nodiscard]] ConstView positions() const {
    return cached != nullptr ? cached->positions : ConstView(nullptr, 0, DType::i32);
  }
  /// The value of a parameter; empty if the layer does not have it.
  [[nodiscard]] ConstView value(ParameterIndex index) const {
    return index == absent ? ConstView(nullptr, 0, bound.dtype) : bound.values[at(index)];
  }
  /// The gradient, which the next op writes; empty as above.
  [[nodiscard]] View gradient(ParameterIndex index) const {
    if (index == absent)
      return {nullptr, 0, DType::f32};
    hooks.before_write(index, stream);
    return bound.gradients[at(index)];
  }
  /// Call after the last write to this gradient was enqueued.
  void ready(ParameterIndex index) const {
    if (report && index != absent)
      hooks.gradient_ready(index, stream);
  }
  [[nodiscard]] ops::Dropout dropout_at(std::uint32_t site) const {
    ops::Dropout here = dropout;
    here.site = site;
    return here;
  }
  /// The part of a scratch tensor for `elements` per token.
  [[nodiscard]] View narrow_of(std::int64_t elements) const {
    return narrow.slice(0, rows() * elements);
  }
  [[nodiscard]] View wide_of(std::int64_t elements) const {
    return wide.slice(0, rows() * elements);
  }
  [[nodiscard]] device::Lease lease(const ActivationPlan::Item& item) const {
    return pool.lease(item.name, item.dtype, item.elements, stream);
  }
};

}  // namespace trireme::nn
