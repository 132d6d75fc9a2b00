// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "layout/budget.hpp"

#include "ops/elementwise.hpp"

#include "optim/schedule.hpp"

namespace trireme::optim {
namespace {

/// Indices of the sums in the all-reduce of a step.
constexpr std::int64_t sum_of_squares = 0, sum_of_losses = 1, num_sums = 2;
static_assert(layout::words_of_step_sums == num_sums * ops::num_words);

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config,
                     reduce::Engine& engine,
                     comm::Communicator& communicator,
                     comm::World& world,
                     device::Device& device,
                     device::Stream& compute,
                     std::uint64_t seed)
    : config_(config),
      engine_(engine),
      communicator_(communicator),
      world_(world),
      summed_(communicator.replica() ? communicator.replica()->world : world),
      compute_(compute),
      groups_(resolve_groups(config, engine.plan().parameters())),
      rule_(config, groups_, seed),
      slots_(state_slots(config)),
      squares_(device) {
  const layout::Plan& plan = engine_.plan();
  TRIREME_EXPECT(slots().size() <= most_slots, "{} state slots", slots().size());
  TRIREME_EXPECT(world_.size() == plan.all_ranks(), "an optimizer of {} ranks on an engine of {}",
                 world_.size(), plan.all_ranks());
  if (auto work = matrix_work(plan, config_, engine_.sharded()))
    matrices_.emplace(config_, std::move(*work), engine_, summed_, communicator_, device);
  for (const layout::StateSlot& slot : slots()) {
    begins_.push_back(layout::slot_begins(
        plan, slot, engine_.sharded() ? std::optional(engine_.rank()) : std::nullopt));
    const auto bytes = static_cast<std::size_t>(begins_.back().back()) * size_bytes(slot.dtype);
    const bool none = bytes == 0 || (memory_.empty() && masters_are_parameters());
    memory_.push_back(none ? device::Buffer() : device.allocate(bytes, slot.label));
  }

  if (config_.outer.on())
    local_steps_.emplace(config_.outer, engine_, communicator_, world_, device);

  const std::int64_t shared_words = layout::step_sum_elements(summed_.size());
  sums_ = communicator_.allocate(static_cast<std::size_t>(shared_words) * size_bytes(DType::i64),
                                 "sums of a step");
  sums_table_ = communicator_.shards(sums_.view(DType::i64));
  numbers_ = device.allocate(sizeof(Numbers), "numbers of a step");
  for (PendingResult& pending : pending_) {
    pending.numbers = device.allocate_shared_with_host(sizeof(Numbers), "numbers of a step");
    pending.locations = device.allocate_shared_with_host(
        plan.buckets().size() * sizeof(std::int64_t), "locations of gradients");
    for (auto* event : {&pending.sums_begin, &pending.sums_end, &pending.over})
      *event = device.make_event();
    for (std::size_t i = 0; matrices_ && i <= matrices_->num_rounds(); ++i)
      pending.matrices.push_back({device.make_event(), device.make_event()});
  }

  buckets_.resize(plan.buckets().size());
  shards_.resize(plan.buckets().size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    find_updates(bucket);
    for (const Update& update : buckets_[b].updates)
      state_.push_back({update.index,
                        update.begin,
                        {update.state.begin(),
                         update.state.begin() + static_cast<std::ptrdiff_t>(slots().size())}});
  }
}

void Optimizer::find_updates(BucketIndex bucket) {
  const layout::Plan& plan = engine_.plan();
  const layout::Bucket& place = plan.bucket(bucket);
  const bool sharded = engine_.sharded();
  const reduce::OwnedShard& owned = engine_.owned()[at(bucket)];
  BucketUpdates& mine = buckets_[at(bucket)];

  mine.updates.clear();
  const std::int64_t begin = sharded ? engine_.rank() * place.shard_elements : 0;
  const auto pieces = plan.find_pieces(bucket, begin, owned.gradient.elements);
  for (const layout::Piece& piece : pieces) {
    Update update;
    update.gradient = owned.gradient.slice(piece.shard_begin, piece.elements);
    update.parameter = owned.parameter.slice(piece.shard_begin, piece.elements);
    update.index = piece.parameter;
    update.begin = piece.parameter_begin;
    update.group = groups_.of(piece.parameter);
    update.whole = matrices_ && matrices_->has(piece.parameter);
    mine.updates.push_back(update);
  }
  find_state(bucket, pieces);
  mine.own.clear();
  if (local_steps_ || plan.primary_replica(bucket) == plan.replica_of(world_.rank()))
    mine.own = plan.find_pieces(bucket, engine_.rank());
  mine.squared.clear();
  const std::int64_t own_begin = sharded ? 0 : engine_.rank() * place.shard_elements;
  for (const layout::Piece& piece : mine.own)
    mine.squared.push_back(owned.gradient.slice(own_begin + piece.shard_begin, piece.elements));
  shards_[at(bucket)] = owned.gradient.slice(own_begin, place.shard_elements);
}

void Optimizer::find_state(BucketIndex bucket, const std::vector<layout::Piece>& pieces) {
  std::vector<Update>& updates = buckets_[at(bucket)].updates;
  for (std::size_t slot = 0; slot < memory_.size(); ++slot) {
    const auto places =
        layout::places_in_slot(engine_.plan(), slots()[slot], begins_[slot][at(bucket)], pieces);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (slot == 0 && masters_are_parameters())
        updates[i].state[slot] = updates[i].parameter;
      else if (places[i] >= 0)
        updates[i].state[slot] =
            memory_[slot].view(slots()[slot].dtype).slice(places[i], pieces[i].elements);
  }
}

View Optimizer::words(std::int64_t sum) const {
  return sums_table_->full.slice(sum * ops::num_words, ops::num_words);
}

/// The compute stream can use the communicator, because compute has waited for all reductions, and
/// later gathers wait for compute.
void Optimizer::find_norm(PendingResult& pending,
                          const ops::Clipping& clipping,
                          ops::StreamSum* losses,
                          LayerNorms* norms) {
  squares_.clear(compute_);
  if (norms != nullptr)
    norms->begin(step_of_update(pending.update), clipping.gradient_scale, compute_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    engine_.wait_for_shard(bucket);
    if (!engine_.cached_shards())
      find_updates(bucket);
    if (norms == nullptr)
      squares_.add_squares(buckets_[b].squared, compute_);
    else
      for (std::size_t i = 0; i < buckets_[b].squared.size(); ++i)
        norms->add_gradient(buckets_[b].own[i].parameter, buckets_[b].squared[i], compute_);
  }
  if (norms != nullptr)
    norms->add_gradients_to(squares_, compute_);
  squares_.store(words(sum_of_squares), compute_);
  if (losses != nullptr)
    losses->store(words(sum_of_losses), compute_);
  else
    compute_.device().fill_zero(words(sum_of_losses), compute_);
  compute_.record(*pending.sums_begin);
  communicator_.all_reduce(*sums_table_, comm::sums_of_the_step, compute_);
  compute_.record(*pending.sums_end);
  const View values = numbers_.view(DType::f64, offsetof(Numbers, squares), num_sums);
  ops::values_of_words(values, sums_table_->full.slice(0, num_sums * ops::num_words), compute_);
  ops::gradient_norm(numbers().gradient, values.slice(sum_of_squares, 1), clipping, compute_);
}

/// If the norm is not finite, this step also locates the element, because the next step overwrites
/// the gradients.
void Optimizer::send_numbers(PendingResult& pending) {
  auto* locations = reinterpret_cast<std::int64_t*>(pending.locations.data());
  ops::find_not_finite({locations, shards_.size()}, shards_, compute_, &numbers().gradient);
  compute_.device().copy(pending.numbers.view(DType::u8), numbers_.view(DType::u8), compute_);
}

/// Whether the host already knows that this step updates nothing. Only on a CPU, whose memory the
/// host can read. The same on all ranks, as the norm is.
bool Optimizer::known_not_finite() const {
  if (compute_.device().kind() != device::Kind::cpu)
    return false;
  compute_.synchronize();
  return numbers().gradient.finite == 0;
}

/// May overwrite the gradients, because their squares are added and elements that are not finite
/// are located. Returns whether there are matrices to orthogonalize.
bool Optimizer::send_matrices(PendingResult& pending) {
  if (!matrices_)
    return false;
  compute_.record(*pending.matrices[0].begin);
  const bool finite = !known_not_finite();
  for (std::size_t b = buckets_.size(); finite && b-- > 0;)
    if (const auto round = matrices_->round_of(static_cast<BucketIndex>(b))) {
      for (const Update& piece : buckets_[b].updates)
        if (piece.whole)
          rule_.prepare(piece, numbers().gradient, compute_);
      matrices_->send(*round);
    }
  compute_.record(*pending.matrices[0].end);
  return finite;
}

/// `sent`: the result of send_matrices() in this step.
void Optimizer::finish_matrices(PendingResult& pending, BucketIndex bucket, bool sent) {
  const auto round = matrices_ ? matrices_->round_of(bucket) : std::nullopt;
  if (!round)
    return;
  const PendingResult::Ends& ends = pending.matrices[1 + *round];
  compute_.record(*ends.begin);
  if (sent)
    matrices_->finish(*round, compute_);
  compute_.record(*ends.end);
}

void Optimizer::update(BucketIndex bucket, LayerNorms* norms) {
  const auto& [updates, own, squared] = buckets_[at(bucket)];
  if (norms == nullptr)
    return rule_.update(updates, numbers().gradient, compute_);
  for (const Update& update : updates)
    norms->update(rule_, update, own, numbers().gradient, compute_);
}

void Optimizer::step(std::int64_t number,
                     std::int64_t total_steps,
                     double gradient_scale,
                     ops::StreamSum* losses,
                     LayerNorms* norms) {
  engine_.finish_reduction();
  PendingResult& pending = pending_of(number);
  TRIREME_EXPECT(!pending.unread, "update {} begins before the result of update {} was read",
                 number, pending.update);
  const std::int64_t step = step_of_update(number);
  pending.update = number;
  pending.engine_step = engine_.steps_begun();
  pending.learning_rate = learning_rate(config_, step, total_steps);
  pending.unread = true;
  find_norm(pending, {gradient_scale, config_.clip_norm}, losses, norms);
  send_numbers(pending);

  rule_.begin_step(step, total_steps, number);
  const bool sent = send_matrices(pending);
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    const auto bucket = static_cast<BucketIndex>(b);
    finish_matrices(pending, bucket, sent);
    update(bucket, norms);
    engine_.mark_updated(bucket);
  }
  if (norms != nullptr)
    norms->fetch(compute_);
  compute_.record(*pending.over);
}

void Optimizer::end_local_steps(double weight) {
  TRIREME_EXPECT(local_steps_, "{} local steps end", config_.outer.local_steps);
  engine_.wait_for_parameters();  // a GPU runs the collectives of one communicator at a time
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    local_steps_->average(static_cast<BucketIndex>(b), buckets_[b].updates, slots().size(),
                          static_cast<float>(weight), compute_);
  publish_parameters();
}

std::vector<reduce::Carried> Optimizer::carried() const {
  auto all = engine_.carried();
  if (local_steps_)
    std::ranges::move(local_steps_->carried(), std::back_inserter(all));
  return all;
}

bool Optimizer::has_result(std::int64_t update) const {
  const PendingResult& pending = pending_[index_of(update)];
  return pending.update == update && pending.over->reached();
}

std::span<const StepResult::Span> Optimizer::times_of_matrices(const PendingResult& pending) {
  matrix_spans_.clear();
  for (const auto& [begin, end] : pending.matrices)
    matrix_spans_.push_back({begin->seconds(), end->seconds() - begin->seconds()});
  return matrix_spans_;
}

StepResult Optimizer::result(std::int64_t update) {
  PendingResult& pending = pending_of(update);
  TRIREME_EXPECT(pending.update == update,
                 "the result of update {} was requested, but that of update {} is kept", update,
                 pending.update);
  pending.over->wait();
  pending.unread = false;
  const auto& numbers = *reinterpret_cast<const Numbers*>(pending.numbers.data());
  StepResult result{.grad_norm = numbers.gradient.norm,
                    .loss_sum = numbers.losses,
                    .learning_rate = pending.learning_rate,
                    .sums_begin = pending.sums_begin->seconds(),
                    .sums_waited = pending.sums_end->seconds() - pending.sums_begin->seconds(),
                    .matrices = times_of_matrices(pending),
                    .not_finite = {}};
  if (numbers.gradient.finite != 0)
    return result;
  result.not_finite = where_not_finite(pending);
  const std::int64_t step = step_of_update(update);
  const bool skips = config_.on_non_finite == OnNonFinite::skip;
  if (step != skipped_step_)
    continue_skips(step, skipped_in_a_row(step - 1) + 1);
  if (skips && skipped_in_a_row_ <= config_.max_skipped_steps)
    return result;
  throw UserError(
      fmt::format("the gradient of step {} is not finite: {}; {}{}. Lower the "
                  "learning rate or use a longer warm-up",
                  step, result.not_finite,
                  config_.outer.on() ? "its replica made no update" : "nothing was updated",
                  skips ? fmt::format(", in this step and in the {} before it "
                                      "(optimizer.max_skipped_steps)",
                                      config_.max_skipped_steps)
                        : ""));
}

// A finding from before the reduction is preferred, since it names the rank that computed the
// element. If finite gradients overflowed in their sum, or check_gradients is off, only the owner's
// finding in the sum exists.
std::string Optimizer::where_not_finite(const PendingResult& pending) {
  const std::string before = found_before_reduction(pending);
  std::string first;
  int others = -1;
  for (const std::string& found : summed_.gather_all(before))
    if (!found.empty()) {
      first = first.empty() ? found : first;
      ++others;
    }
  if (others > 0)
    first += fmt::format(", and on {} more rank{}", others, others == 1 ? "" : "s");
  if (first.empty())
    for (const std::string& found : summed_.gather_all(found_in_sum(pending)))
      if (first.empty())
        first = found;
  // Squares of finite fp32 values cannot overflow an fp64 sum, so some element is not finite.
  TRIREME_EXPECT(!first.empty(), "the norm of update {} is not finite, but every element is",
                 pending.update);
  return first;
}

std::string Optimizer::found_before_reduction(const PendingResult& pending) const {
  const auto found = engine_.first_not_finite(pending.engine_step);
  if (!found)
    return {};
  return fmt::format("{}[{}] in bucket {}, computed by rank {}",
                     engine_.plan().parameter(found->parameter).name, found->element,
                     at(found->bucket), world_.rank());
}

std::string Optimizer::found_in_sum(const PendingResult& pending) const {
  const layout::Plan& plan = engine_.plan();
  const auto* locations = reinterpret_cast<const std::int64_t*>(pending.locations.data());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const layout::Piece& piece : plan.find_pieces(static_cast<BucketIndex>(b), engine_.rank()))
      if (const std::int64_t in_piece = locations[b] - piece.shard_begin;
          in_piece >= 0 && in_piece < piece.elements)
        return fmt::format("{}[{}] in bucket {}, in the sum over ranks",
                           plan.parameter(piece.parameter).name, piece.parameter_begin + in_piece,
                           b);
  return {};
}

std::vector<std::int64_t> Optimizer::state_bytes() const {
  std::vector<std::int64_t> bytes;
  bytes.reserve(memory_.size());
  for (const device::Buffer& slot : memory_)
    bytes.push_back(static_cast<std::int64_t>(slot.bytes()));
  return bytes;
}

void Optimizer::publish_parameters() {
  for (const BucketUpdates& bucket : buckets_)
    for (const Update& piece : bucket.updates) {
      if (local_steps_)
        local_steps_->begin(piece, slots().size(), compute_);
      if (piece.state.front().data != piece.parameter.data)
        run(ops::Cast{.to = piece.parameter, .from = piece.state.front()}, compute_);
    }
  engine_.publish_parameters();
}

}  // namespace trireme::optim
