// SPDX-License-Identifier: Apache-2.0
#include "bench/verify_checks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "base/hash.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint.hpp"

#include "session/saver.hpp"

namespace trireme::bench {
namespace {

/// Allows 2^22 parameters of 2^40 elements.
std::int64_t order_of(ParameterIndex parameter, std::int64_t element) {
  return (static_cast<std::int64_t>(at(parameter)) << 40U) | element;
}

std::vector<std::byte> bytes_of(ConstView view) {
  return {view.data, view.data + view.bytes()};
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

double value_of(const std::byte* data, DType dtype) {
  if (dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, data, sizeof value);
    return static_cast<double>(value);
  }
  Bf16 value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<double>(static_cast<float>(value));
}

/// The first element of `mine` that differs from the plain combination.
std::optional<Finding> compare(const layout::Plan& plan,
                               ParameterIndex parameter,
                               std::int64_t begin,
                               ConstView mine,
                               const std::vector<std::byte>& expected) {
  if (mine.empty() && expected.empty())
    return std::nullopt;
  const std::size_t size = size_bytes(mine.dtype);
  const std::byte* theirs = expected.data() + static_cast<std::size_t>(begin) * size;
  if (std::memcmp(mine.data, theirs, mine.bytes()) == 0)
    return std::nullopt;
  const auto differ = std::mismatch(mine.data, mine.data + mine.bytes(), theirs);
  const std::int64_t at_element = (differ.first - mine.data) / static_cast<std::ptrdiff_t>(size);
  const std::size_t at_byte = static_cast<std::size_t>(at_element) * size;
  return Finding{order_of(parameter, begin + at_element),
                 fmt::format("{}[{}] is {:.9g}, but {:.9g} in the plain combination",
                             plan.parameter(parameter).name, begin + at_element,
                             value_of(mine.data + at_byte, mine.dtype),
                             value_of(theirs + at_byte, mine.dtype))};
}

void keep_first(std::optional<Finding>& first, std::optional<Finding> found) {
  if (found && (!first || found->order < first->order))
    first = std::move(found);
}

/// The parts of `whole`, elements [begin, begin + whole.elements) of the bucket, without
/// parameters.
void add_padding(std::vector<View>& all, View whole, std::span<const layout::Piece> pieces) {
  std::int64_t end = 0;
  for (const layout::Piece& piece : pieces) {
    if (piece.shard_begin > end)
      all.push_back(whole.slice(end, piece.shard_begin - end));
    end = piece.shard_begin + piece.elements;
  }
  if (end < whole.elements)
    all.push_back(whole.slice(end, whole.elements - end));
}

std::int64_t owned_begin(const reduce::Engine& engine, BucketIndex bucket) {
  return engine.sharded() ? engine.rank() * engine.plan().bucket(bucket).shard_elements : 0;
}

std::vector<layout::Piece> owned_pieces(const reduce::Engine& engine,
                                        const reduce::OwnedShard& owned) {
  return engine.plan().find_pieces(owned.bucket, owned_begin(engine, owned.bucket),
                                   owned.gradient.elements);
}

void make_nan(View view) {
  std::memset(view.data, 0xff, view.bytes());
}

/// A rank's artificial gradient: sums over any subset of up to 8 ranks are distinct and exact, also
/// in bf16. With gradients in int8 or fp8, the sum of all ranks is exact.
float own_term(int rank, int ranks, reduce::GradientDType wire) {
  if (wire == reduce::GradientDType::int8 || wire == reduce::GradientDType::fp8)
    return rank < (wire == reduce::GradientDType::int8 ? 7 : 4) ? std::ldexp(1.0F, rank) : 0.0F;
  return ranks <= 8 ? std::ldexp(1.0F, rank) : 1.0F;
}

float sum_of_terms(int ranks, reduce::GradientDType wire) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += own_term(rank, ranks, wire);
  return sum;
}

/// Whether a sum is that of what was sent. Factors and the largest elements are approximations.
bool is_exact(const reduce::ParallelConfig& config, const layout::Parameter& parameter) {
  return config.gradient_dtype < reduce::GradientDType::top4 &&
         (!config.gradient_rank.given() || parameter.shape.size() != 2);
}

std::optional<Finding> check_sums(const reduce::Engine& engine,
                                  const reduce::OwnedShard& owned,
                                  float expected,
                                  const reduce::ParallelConfig& config) {
  for (const layout::Piece& piece : owned_pieces(engine, owned)) {
    if (!is_exact(config, engine.plan().parameter(piece.parameter)))
      continue;
    const auto* values = owned.gradient.slice(piece.shard_begin, piece.elements).as<float>();
    for (std::int64_t i = 0; i < piece.elements; ++i)
      if (values[i] != expected)
        return Finding{
            order_of(piece.parameter, piece.parameter_begin + i),
            fmt::format("{}[{}] in bucket {} was not reduced exactly once: the sum over {} ranks "
                        "is {}, but should be {}",
                        engine.plan().parameter(piece.parameter).name, piece.parameter_begin + i,
                        at(owned.bucket), engine.plan().all_ranks(), values[i], expected)};
  }
  return std::nullopt;
}

}  // namespace

std::string agree(comm::World& world, std::optional<Finding> mine) {
  if (mine)
    mine->text = fmt::format("on rank {}, {}", world.rank(), mine->text);
  std::optional<Finding> first;
  for (auto& found : comm::gather_packed(world, mine)) keep_first(first, std::move(found));
  return first ? first->text : "";
}

void Reference::keep_step(const Session& session, const StepOutcome& outcome) {
  Step step{outcome.loss, outcome.grad_norm, {}};
  step.state.assign(session.optimizer.slots().size(), {});
  for (auto& slot : step.state) slot.resize(session.plan.parameters().size());
  for (const optim::StatePiece& piece : session.optimizer.state()) {
    TRIREME_EXPECT(piece.parameter_begin == 0 &&
                       piece.elements() == session.plan.placement(piece.parameter).elements,
                   "the plain combination has only a part of {}",
                   session.plan.parameter(piece.parameter).name);
    for (std::size_t slot = 0; slot < step.state.size(); ++slot)
      step.state[slot][at(piece.parameter)] = bytes_of(piece.slots[slot]);
  }
  steps_.push_back(std::move(step));
}

void Reference::keep_gathered(const Session& session) {
  for (std::size_t p = 0; p < session.plan.parameters().size(); ++p)
    gathered_.push_back(bytes_of(session.engine.parameter(static_cast<ParameterIndex>(p))));
}

std::optional<Finding> Reference::compare_step(const Session& session,
                                               const StepOutcome& outcome,
                                               std::int64_t step) const {
  const Step& kept = steps_[static_cast<std::size_t>(step - 1)];
  if (!same_bits(outcome.loss, kept.loss))
    return Finding{0, fmt::format("the loss is {:.17g}, but {:.17g} in the plain combination",
                                  outcome.loss, kept.loss)};
  if (!same_bits(outcome.grad_norm, kept.grad_norm))
    return Finding{0,
                   fmt::format("the gradient norm is {:.17g}, but {:.17g} in the plain combination",
                               outcome.grad_norm, kept.grad_norm)};
  std::optional<Finding> first;
  for (const optim::StatePiece& piece : session.optimizer.state())
    for (std::size_t slot = 0; slot < kept.state.size(); ++slot)
      keep_first(first, compare(session.plan, piece.parameter, piece.parameter_begin,
                                piece.slots[slot], kept.state[slot][at(piece.parameter)]));
  return first;
}

std::optional<Finding> Reference::compare_gathered(Session& session) const {
  std::optional<Finding> first;
  for (std::size_t p = 0; p < gathered_.size(); ++p) {
    const auto parameter = static_cast<ParameterIndex>(p);
    session.engine.before_use({&parameter, 1});
    keep_first(first, compare(session.plan, parameter, 0, session.engine.parameter(parameter),
                              gathered_[p]));
  }
  return first;
}

std::optional<Finding> Reference::compare_checkpoint(const std::string& directory,
                                                     const Session& session,
                                                     comm::World& world) const {
  const auto& slots = session.optimizer.slots();
  const auto& state = steps_.back().state;
  std::vector<record::MutableSlab> wanted;
  std::vector<const Bytes*> expected;
  std::vector<Bytes> memory;
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    for (std::size_t p = 0; p < state[slot].size(); ++p) {
      const DType dtype = slots[slot].dtype;
      const auto size = static_cast<std::int64_t>(size_bytes(dtype));
      const std::int64_t elements = std::ssize(state[slot][p]) / size;
      const std::int64_t begin = elements * world.rank() / world.size();
      const std::int64_t count = elements * (world.rank() + 1) / world.size() - begin;
      if (count == 0)
        continue;
      Bytes& bytes = memory.emplace_back(static_cast<std::size_t>(count * size));
      wanted.push_back({slots[slot].saved_name(session.plan.replica_of(session.world.rank())),
                        static_cast<ParameterIndex>(p), begin, View(bytes.data(), count, dtype)});
      expected.push_back(&state[slot][p]);
    }
  record::load_checkpoint(directory, session.plan, session::model_facts(session.job.shape), wanted,
                          world);
  std::optional<Finding> first;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    keep_first(first, compare(session.plan, wanted[i].parameter, wanted[i].begin, wanted[i].data,
                              *expected[i]));
  return first;
}

std::uint64_t Reference::hash(const layout::StateSlots& slots) const {
  std::uint64_t sum = 0;
  const auto add = [&](const std::vector<Bytes>& all) {
    for (const Bytes& bytes : all)
      sum = hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, sum);
  };
  for (const Step& step : steps_)
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      if (!slots[slot].of_replica)
        add(step.state[slot]);
  add(gathered_);
  return sum;
}

std::vector<View> owned_padding(const Session& session) {
  std::vector<View> all;
  for (const reduce::OwnedShard& owned : session.engine.owned()) {
    const auto pieces = owned_pieces(session.engine, owned);
    add_padding(all, owned.gradient, pieces);
    add_padding(all, owned.parameter, pieces);
  }
  return all;
}

std::optional<Finding> check_gathered_padding(Session& session) {
  std::optional<Finding> first;
  for (std::size_t b = session.plan.buckets().size(); b-- > 0;) {
    const auto bucket = static_cast<BucketIndex>(b);
    session.engine.before_use(session.plan.bucket(bucket).parameters);
    const View whole = session.engine.bucket_parameters(bucket);
    std::vector<View> padding;
    add_padding(padding, whole, session.plan.find_pieces(bucket, 0, whole.elements));
    keep_first(first, check_zero(padding));
  }
  return first;
}

std::optional<Finding> check_zero(const std::vector<View>& padding) {
  for (const View& part : padding)
    if (std::any_of(part.data, part.data + part.bytes(),
                    [](std::byte byte) { return byte != std::byte{0}; }))
      return Finding{0, "padding is no longer zero"};
  return std::nullopt;
}

void poison_gradients(Session& session) {
  for (std::size_t b = 0; b < session.plan.buckets().size(); ++b)
    make_nan(session.engine.bucket_gradients(static_cast<BucketIndex>(b)));
  for (const reduce::OwnedShard& owned : session.engine.owned()) make_nan(owned.gradient);
}

void poison_foreign_parameters(Session& session) {
  if (!session.engine.sharded())
    return;
  for (std::size_t b = 0; b < session.plan.buckets().size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    const View whole = session.engine.bucket_parameters(bucket);
    if (session.engine.parameters_share_slots()) {  // the rank's own part is stored elsewhere
      make_nan(whole);
      continue;
    }
    const std::int64_t begin = owned_begin(session.engine, bucket);
    const std::int64_t end = begin + session.plan.bucket(bucket).shard_elements;
    make_nan(whole.slice(0, begin));
    make_nan(whole.slice(end, whole.elements - end));
  }
}

std::optional<Finding> check_reduced_once(Session& session) {
  reduce::Engine& engine = session.engine;
  const int ranks = session.world.size();
  poison_gradients(session);
  engine.begin_step();
  engine.wait_for_parameters();
  // The leaves of a tree divide the rank's term: powers of two, so nothing is rounded.
  const reduce::GradientDType wire = session.job.parallel.gradient_dtype;
  const auto share =
      own_term(session.world.rank(), ranks, wire) / static_cast<float>(engine.leaves());
  for (std::int64_t leaf = 0; leaf < engine.leaves(); ++leaf) {
    if (leaf > 0)
      engine.next_leaf();
    for (std::size_t p = session.plan.parameters().size(); p-- > 0;) {
      const auto parameter = static_cast<ParameterIndex>(p);
      engine.before_write(parameter);
      const View gradient = engine.gradient(parameter);
      std::fill_n(gradient.as<float>(), gradient.elements, share);
      if (leaf + 1 == engine.leaves())
        engine.mark_ready(parameter);
    }
  }
  engine.finish_reduction();
  // With local steps a sum is over the ranks of a replica, each of which has one rank (verify()).
  const float sum = session.job.optimizer.outer.on() ? own_term(session.world.rank(), ranks, wire)
                                                     : sum_of_terms(ranks, wire);
  std::optional<Finding> first;
  for (const reduce::OwnedShard& owned : engine.owned()) {
    engine.wait_for_shard(owned.bucket);
    keep_first(first, check_sums(engine, owned, sum, session.job.parallel));
  }
  keep_first(first, check_zero(owned_padding(session)));
  for (std::size_t b = engine.owned().size(); b-- > 0;)
    engine.mark_updated(static_cast<BucketIndex>(b));
  engine.wait_for_parameters();
  return first;
}

}  // namespace trireme::bench
