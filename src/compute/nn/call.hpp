// SPDX-License-Identifier: Apache-2.0
// What every layer is given while it runs: one call of train, evaluate or next_logits, or of a
// Decoder (model/decoder.hpp).
//
// Layers own neither parameters nor memory. A Call turns their ParameterIndex into the views that
// are bound at present, and their Slots (activations.hpp) into views of this batch. Making a view
// costs a few additions, and no layer keeps one from call to call.
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

/// What the rows of a decoder's call are: the positions of sequences in a cache, [rows] int32 each
/// (ops/cached_attention.hpp).
struct Places {
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
  /// Which of the batch sizes that layers were prepared for (kernels.hpp).
  std::size_t size = 0;
  bool training = false;
  bool report = false;  ///< gradient_ready is called
  /// Rate, key and first sample; the site is a layer's.
  ops::Dropout dropout{};
  View narrow{}, wide{};  ///< scratch, as large as planned
  /// Decoding: context is 1, and keys and values of earlier positions lie in the layers' caches.
  const Places* places = nullptr;
  /// Attention stays inside of documents: where that of each row begins, a position of its
  /// sequence, [rows] int32 (ops/document_starts.hpp). Empty: it does not.
  ConstView document_starts{nullptr, 0, DType::i32};

  [[nodiscard]] std::int64_t rows() const { return sequences * context; }
  [[nodiscard]] View view(const Slot& slot) const {
    return {memory.data() + (training ? slot.offset : slot.evaluation_offset),
            slot.elements * sequences, slot.dtype};
  }
  /// Of Planner::keep_always.
  [[nodiscard]] View whole(const Slot& slot) const {
    return {memory.data() + slot.offset, slot.elements, slot.dtype};
  }
  /// Of the rows while decoding; empty: those of whole sequences.
  [[nodiscard]] ConstView positions() const {
    return places != nullptr ? places->positions : ConstView(nullptr, 0, DType::i32);
  }
  /// Empty for a parameter that the layer does not have.
  [[nodiscard]] ConstView value(ParameterIndex index) const {
    return index == absent ? ConstView(nullptr, 0, bound.dtype) : bound.values[at(index)];
  }
  /// To be written by the op that follows; empty as above.
  [[nodiscard]] View gradient(ParameterIndex index) const {
    if (index == absent)
      return {nullptr, 0, DType::f32};
    hooks.before_write(index, stream);
    return bound.gradients[at(index)];
  }
  /// The last write to this gradient is enqueued.
  void ready(ParameterIndex index) const {
    if (report && index != absent)
      hooks.gradient_ready(index, stream);
  }
  [[nodiscard]] ops::Dropout dropout_at(std::uint32_t site) const {
    ops::Dropout here = dropout;
    here.site = site;
    return here;
  }
  /// The part of a scratch tensor that so many elements per token take.
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
