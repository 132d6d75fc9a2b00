// SPDX-License-Identifier: Apache-2.0
#include "session/micro_step_graphs.hpp"

#include <exception>
#include <span>
#include <utility>

namespace trireme::session {

/// Receives the model's calls of hooks during a capture, and cuts it into pieces. The destructor ends
/// a capture that an exception has interrupted.
class MicroStepGraphs::Recorder final : public model::Hooks {
 public:
  Recorder(MicroStepGraphs& graphs, Recording& recording)
      : graphs_(graphs),
        recording_(recording),
        used_(graphs.plan_.buckets().size()),
        written_(used_) {
    for (const layout::Bucket& bucket : graphs.plan_.buckets())
      unfinished_.push_back(bucket.parameters.size());
    begin_piece();
  }
  ~Recorder() override {
    if (!captures_)
      return;
    try {
      static_cast<void>(graphs_.compute_.end_capture());
    } catch (const std::exception&) {
      // The exception that is being thrown reports the error.
    }
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*stream*/) override {
    bool cuts = graphs_.parameters_share_slots_ && !parameters.empty();
    if (!recording_.first && !cuts)
      return;
    for (const ParameterIndex parameter : parameters)
      if (const std::size_t bucket = bucket_of(parameter); !used_[bucket]) {
        used_[bucket] = true;
        cuts = true;
      }
    if (!cuts)
      return;
    recording_.pieces.back().used.assign(parameters.begin(), parameters.end());
    end_piece();
    begin_piece();
  }

  void before_write(ParameterIndex parameter, device::Stream& /*stream*/) override {
    const std::size_t bucket = bucket_of(parameter);
    if (!graphs_.gradients_share_slots_ || written_[bucket])
      return;
    written_[bucket] = true;
    recording_.pieces.back().written = parameter;
    end_piece();
    begin_piece();
  }

  void gradient_ready(ParameterIndex parameter, device::Stream& /*stream*/) override {
    recording_.pieces.back().ready.push_back(parameter);
    if (--unfinished_[bucket_of(parameter)] > 0)
      return;
    end_piece();
    begin_piece();
  }

  void end_piece() {
    Piece& piece = recording_.pieces.back();
    captures_ = false;
    piece.graph = graphs_.compute_.end_capture();
    graphs_.run(piece);
  }

 private:
  void begin_piece() {
    recording_.pieces.emplace_back();
    graphs_.compute_.begin_capture();
    captures_ = true;
  }
  [[nodiscard]] std::size_t bucket_of(ParameterIndex parameter) const {
    return at(graphs_.plan_.placement(parameter).bucket);
  }

  MicroStepGraphs& graphs_;
  Recording& recording_;
  std::vector<bool> used_;               // by bucket: its parameters were requested
  std::vector<bool> written_;            // by bucket: its gradients were written
  std::vector<std::size_t> unfinished_;  // by bucket: gradients not complete yet
  bool captures_ = false;
};

MicroStepGraphs::MicroStepGraphs(model::Gpt& model,
                                 const layout::Plan& plan,
                                 model::Hooks& hooks,
                                 device::Stream& compute,
                                 bool gradients_share_slots,
                                 bool parameters_share_slots)
    : model_(model),
      plan_(plan),
      hooks_(hooks),
      compute_(compute),
      gradients_share_slots_(gradients_share_slots),
      parameters_share_slots_(parameters_share_slots) {
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    all_.push_back(static_cast<ParameterIndex>(p));
}

void MicroStepGraphs::train(const model::Batch& batch, View losses, bool first, bool last) {
  // In the first micro-step compute has already waited for all parameters, so this does not wait.
  if (!first && !parameters_share_slots_)
    hooks_.before_use(all_, compute_);
  for (const Recording& known : recordings_)
    if (known.tokens == batch.tokens.data && known.losses == losses.data &&
        known.rows == losses.elements && known.first == first && known.last == last) {
      for (const Piece& piece : known.pieces) run(piece);
      return;
    }
  Recording recording{batch.tokens.data, losses.data, losses.elements, first, last, {}};
  Recorder recorder(*this, recording);
  model_.train(batch, losses, last, recorder, compute_);
  recorder.end_piece();
  recordings_.push_back(std::move(recording));
}

void MicroStepGraphs::run(const Piece& piece) {
  piece.graph->launch(compute_);
  if (!piece.used.empty())
    hooks_.before_use(piece.used, compute_);
  for (const ParameterIndex parameter : piece.ready) hooks_.gradient_ready(parameter, compute_);
  if (piece.written)
    hooks_.before_write(*piece.written, compute_);
}

}  // namespace trireme::session
