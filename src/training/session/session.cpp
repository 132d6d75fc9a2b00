// SPDX-License-Identifier: Apache-2.0
#include "session/session.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "base/round_up.hpp"

#include "ops/attention.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/together.hpp"

#include "batches/open.hpp"

#include "weights/checkpoint_weights.hpp"

#include "session/host_memory.hpp"
#include "session/machine.hpp"
#include "session/share_out.hpp"

namespace trireme::session {

batches::Split open_data(const Job& job,
                         const std::string& cache_directory,
                         comm::World& world,
                         Log& log,
                         batches::Sources* kept) {
  const auto seed = static_cast<std::uint64_t>(job.run.seed);
  const batches::Setup setup{.config = job.data,
                             .default_cache_directory = cache_directory,
                             .seed = seed,
                             .vocabulary = job.shape.vocabulary,
                             .context = job.shape.context,
                             .document_mask = job.shape.masks_documents(),
                             .tokenizer = job.tokenizer};
  batches::Sources sources = batches::open_sources(setup, world, log);
  std::optional<batches::Split> split;
  comm::together(world, [&] {
    split = batches::split(sources.train, sources.validation,
                           {job.shape.context, job.batch.sizes().largest(), job.shape.vocabulary,
                            job.data.validation_fraction, seed, batches::Skips(job.data.skip)});
  });
  comm::expect_agreement(
      world,
      {{"data",
        fmt::format(
            "{} training tokens, {} validation tokens, hash {:016x}", split->train.num_tokens(),
            split->validation ? split->validation->num_tokens() : 0, batches::content_hash(*split)),
        comm::Fact::Owner::user}});
  if (kept != nullptr)
    *kept = std::move(sources);
  return std::move(*split);
}

TemporaryCache::TemporaryCache(const Job& job, comm::World& world) : TemporaryDirectory(world) {
  if (job.data.has_text() && !job.data.cache.given() && world.local_size() < world.size())
    throw UserError({{{},
                      "data.cache",
                      "auto is a temporary directory for this command, which ranks on other hosts "
                      "cannot read. Give a directory that all hosts share."}});
}

double bits_per_byte(double nats, std::int64_t bytes) {
  return bytes > 0 ? nats / (std::numbers::ln2 * static_cast<double>(bytes))
                   : std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::int32_t> bytes_of_all_tokens(const text::Tokenizer* tokenizer) {
  std::vector<std::int32_t> bytes;
  if (tokenizer != nullptr)
    for (text::Token token = 0; token < tokenizer->vocabulary(); ++token)
      bytes.push_back(tokenizer->bytes_of(token));
  return bytes;
}

Session::Session(const Job& the_job,
                 const batches::Split& the_data,
                 comm::World& the_world,
                 bool poison)
    : job(the_job),
      data(the_data),
      world(the_world),
      sizes(job.batch.sizes()),
      device(open_device(job.run.device, choose_threads(job.run.threads, world), world, &choices)),
      energy(world.local_rank() == 0, device->uuid()),
      dtype(choose_dtype(job.run.precision, *device, world, &choices)),
      compute_stream(device->make_stream(device::StreamMode::inlined, "compute")),
      scratch(*device, {.pooled = job.memory.pool, .poison = poison}),
      plan(plan_of(job, world, *device)),
      shape(with_memory(
          job, decided_shape(job, plan, {dtype, device->kind()}), plan, dtype, *device, world)),
      communicator(comm::make_communicator(job.parallel.transport,
                                           job.parallel.reduction,
                                           world,
                                           *device,
                                           communicator_options(job, plan.replica_ranks()))),
      engine(plan, dtype, job.parallel, *communicator, *device, *compute_stream, &world),
      model(*device,
            shape,
            dtype,
            job.batch.micro_sequences,
            static_cast<std::uint64_t>(job.run.seed),
            &scratch,
            operation_options(job, *device)),
      optimizer(job.optimizer,
                engine,
                *communicator,
                world,
                *device,
                *compute_stream,
                static_cast<std::uint64_t>(job.run.seed)),
      hooks(engine),
      recorder({.enabled = job.record.spans, .rank = static_cast<std::uint32_t>(world.rank())},
               device.get()),
      replicas_(engine, world, *device, *compute_stream),
      bytes_of_(bytes_of_all_tokens(job.tokenizer.get())),
      read_ahead_(data.train,
                  {.sizes = sizes, .rank = world.rank(), .of = batches_of(job, 0, world.size())},
                  bytes_of_),
      micro_batch_(*device, job.batch.micro_sequences, job.shape.context),
      losses_(*device) {
  expect_equal_plans();
  for (PendingStep& pending : pending_)
    for (auto* event : {&pending.began, &pending.optimizer_began, &pending.optimizer_ended,
                        &pending.averaged, &pending.ended})
      *event = device->make_event();
  if (job.evaluate.noise_scale.every_steps > 0)
    for (PendingStep& pending : pending_)
      pending.leaf_squares = std::make_unique<ops::StreamSum>(*device);
  if (job.record.norms_every_steps > 0)
    norms_.emplace(plan, *device);
  for (const batches::BatchSizes::Part& part : sizes.parts()) batches(part.step).validate();
  std::vector<View> gradients;
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    gradients.push_back(engine.gradient(static_cast<ParameterIndex>(p)));
  model.bind(parameter_views(), std::move(gradients));
  if (device->kind() == device::Kind::cuda)
    if (std::string note = model::slow_attention_note(job.shape, dtype); !note.empty())
      choices.push_back(std::move(note));
  choose_graphs();
}

void Session::choose_graphs() {
  bool wanted = job.gpu.graphs.value_or(device->kind() == device::Kind::cuda && job.memory.pool);
  comm::together(world, [&] {
    const std::string trouble =
        wanted
            ? ops::capture_trouble(
                  *device, model::attention_shape(job.shape, 0, dtype, job.batch.micro_sequences),
                  job.gpu.attention)
            : std::string();
    if (trouble.empty())
      return;
    if (job.gpu.graphs.value)
      throw DeviceError(device->description(), "gpu.graphs: true", trouble);
    without_graphs = trouble;
    wanted = false;
  });
  if (!wanted)
    return;
  TRIREME_EXPECT(job.memory.pool, "graphs of scratch that is freed: {}", "memory.pool is off");
  graphs.emplace(model, plan, hooks, *compute_stream, engine.gradients_share_slots(),
                 engine.parameters_share_slots());
}

void Session::expect_equal_plans() {
  const std::uint64_t mine = plan.fingerprint();
  TRIREME_EXPECT(comm::differing(world, {&mine, 1}).empty(),
                 "the plan of rank {} is {:#x}, but other ranks have different plans", world.rank(),
                 mine);
}

void Session::micro_steps(std::int64_t number, std::int64_t local_step) {
  const auto first = static_cast<std::int64_t>(next_sample);
  const batches::Batches batch = batches(number);
  const std::int64_t steps = batch.micro_steps(world.rank()) / local_steps(),
                     per_leaf = steps / engine.leaves();
  const bool reduces_each = job.parallel.reduces_micro_steps();
  for (std::int64_t i = 0; i < steps; ++i) {
    if (i > 0 && i % per_leaf == 0)
      engine.next_leaf();
    if (i > 0 && reduces_each)
      engine.next_micro_step();
    const std::int64_t micro = local_step * steps + i;
    recorder.at_micro_step(micro);
    device::Span loading(recorder, device::SpanName::data_next);
    std::optional<comm::World::AtWork> reading(std::in_place, world);  // a disk may stall
    const batches::ReadAhead::Block& block = read_ahead_.take(number, first, micro);
    reading.reset();
    text_bytes_ += block.bytes;
    micro_batch_.load(block, *compute_stream);
    loading.end();
    const device::StreamSpan training(recorder, device::SpanName::model_train, 0, *compute_stream);
    train_micro_step(block.samples.count, i == 0, reduces_each || i + 1 == steps);
    if (block.samples.count > 0)
      losses_.add_values(micro_batch_.losses(), *compute_stream);
  }
}

void Session::train_micro_step(std::int64_t sequences, bool first, bool last) {
  model::Batch batch = micro_batch_.batch();
  const bool full = sequences == micro_batch_.sequences();
  if (!full)  // a sequence weighs as much as in a full micro-batch; one that only stands for a
              // sample, which other ranks need for their collectives, nothing
    batch.loss_scale =
        sequences == 0 ? 0
                       : 1.0F / static_cast<float>(micro_batch_.sequences() * job.shape.context);
  if (graphs && engine.steps_begun() > 1 && full)
    graphs->train(batch, micro_batch_.losses(), first, last);
  else
    model.train(batch, micro_batch_.losses(), last, hooks, *compute_stream);
}

void Session::compute(std::int64_t number) {
  recorder.at_step(number);
  const device::ProfilerRange range(device::SpanName::step);
  PendingStep& pending = pending_of(number);
  text_bytes_ = 0;
  compute_stream->record(*pending.began);
  losses_.clear(*compute_stream);
  pending.local = {};
  if (local_steps() == 1) {
    update(number, 0);
  } else {
    std::exception_ptr refused;  // in all ranks of a replica alike
    for (std::int64_t i = 0; i < local_steps() && !refused; ++i) {
      update(number, i);
      try {
        finish_local_step(number, i);
      } catch (const UserError&) {
        refused = std::current_exception();
      }
    }
    comm::together(world, [&] {
      if (refused)
        std::rethrow_exception(refused);
    });
    const batches::Batches batch = batches(number);
    optimizer.end_local_steps(static_cast<double>(sequences_of_replica(batch)) /
                              static_cast<double>(batch.sequences_of_update()));
    compute_stream->record(*pending.averaged);
  }
  next_sample = static_cast<std::uint64_t>(
      data.train.skips().after(static_cast<std::int64_t>(next_sample), sizes.at(number)));
}

std::int64_t Session::sequences_of_replica(const batches::Batches& batch) const {
  std::int64_t sequences = 0;
  for (int rank = 0; rank < world.size(); ++rank)
    if (plan.replica_of(rank) == plan.replica_of(world.rank()))
      sequences += batch.share(rank).count;
  return sequences;
}

void Session::update(std::int64_t number, std::int64_t local_step) {
  PendingStep& pending = pending_of(number);
  const batches::Batches batch = batches(number);
  const std::int64_t sequences = local_steps() > 1 ? sequences_of_replica(batch) : batch.sequences;
  const double scale = static_cast<double>(batch.micro_sequences) / static_cast<double>(sequences);
  // What was not sent keeps its size in the mean gradient.
  if (gradient_scale != scale && gradient_scale > 0)
    engine.scale_errors(static_cast<float>(gradient_scale / scale));
  gradient_scale = scale;
  engine.begin_step(
      batch.leaves > 0
          ? std::optional(leaves_of_term(batch.leaves, world.rank(), world.size()).count)
          : std::nullopt);
  pending.engine_step = engine.steps_begun();
  if (measures_noise(number)) {
    pending.leaf_squares->clear(*compute_stream);
    engine.measure_leaves(*pending.leaf_squares);
  }
  micro_steps(number, local_step);
  if (measures_noise(number))
    pending.leaf_squares->fetch(*compute_stream);
  scratch.freeze();
  engine.finish_reduction();
  const device::ProfilerRange range(device::SpanName::optim_step);
  compute_stream->record(*pending.optimizer_began);
  optimizer.step(last_update(number - 1) + local_step + 1, job.schedule_steps(), scale, &losses_,
                 measures_norms(number) ? &*norms_ : nullptr);
  compute_stream->record(*pending.optimizer_ended);
}

void Session::finish_local_step(std::int64_t number, std::int64_t local_step) {
  PendingStep::Local& local = pending_of(number).local;
  const bool last = local_step + 1 == local_steps();
  local.result = optimizer.result(last_update(number - 1) + local_step + 1);
  if (!last)
    local.waited +=
        engine.times(pending_of(number).engine_step).exposed_s + local.result.sums_waited;
  if (local.not_finite.empty())
    local.not_finite = local.result.not_finite;
}

Requests Session::finish_step(std::int64_t number, Requests mine) {
  mine.unfinished = optimizer.has_result(last_update(number)) ? 0 : 1;
  mine.text_bytes = text_bytes_;
  PendingStep& pending = pending_of(number);
  mine.energy = pending.outcome.own_energy = energy.used();
  pending.outcome.control_begin = device::steady_seconds();
  const Requests agreed = agree(world, mine);
  pending.text_bytes = agreed.text_bytes;
  pending.outcome.energy = agreed.energy;
  // If the device has not completed the step, it does not wait for this exchange.
  pending.outcome.control_waited =
      mine.unfinished == 0 ? device::steady_seconds() - pending.outcome.control_begin : 0;
  compute_stream->record(*pending.ended);
  return agreed;
}

double Session::leaf_norm_squared(std::int64_t number) {
  ops::OrderFreeSum& squares = pending_of(number).leaf_squares->fetched();
  world.sum(squares.words());
  // A leaf's gradient is a sum over its micro-steps.
  const batches::Batches batch = batches(number);
  const auto of_a_leaf =
      static_cast<double>(batch.sequences / (batch.leaves * batch.micro_sequences));
  const auto leaves = static_cast<double>(batch.leaves);
  return squares.value() / (of_a_leaf * of_a_leaf * leaves);
}

optim::StepResult Session::result_of_replicas(const PendingStep& pending) {
  optim::StepResult result = pending.local.result;
  result.not_finite.clear();
  const bool first = plan.rank_in_replica(world.rank()) == 0;
  const double own = first ? result.loss_sum : 0;
  const std::vector<double> losses = world.gather_all({&own, 1});
  result.loss_sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  for (const std::string& found : world.gather_all(first ? pending.local.not_finite : ""))
    if (result.not_finite.empty())
      result.not_finite = found;
  return result;
}

StepOutcome Session::outcome(std::int64_t number) {
  const PendingStep& pending = pending_of(number);
  StepOutcome outcome = pending.outcome;
  static_cast<optim::StepResult&>(outcome) =
      local_steps() > 1 ? result_of_replicas(pending) : optimizer.result(number);
  pending.ended->wait();
  world.expect_no_loss();
  outcome.tokens = sizes.at(number) * job.shape.context;
  outcome.loss = outcome.loss_sum / static_cast<double>(outcome.tokens);
  outcome.bits_per_byte = bits_per_byte(outcome.loss_sum, pending.text_bytes);
  if (measures_noise(number))
    outcome.leaf_norm_squared = leaf_norm_squared(number);
  if (measures_norms(number))
    outcome.norms = norms_->norms(number, world);
  outcome.began = pending.began->seconds();
  outcome.optimizer_began = pending.optimizer_began->seconds();
  // The clock of a virtual machine may go back when the machine is moved.
  outcome.seconds = std::max(pending.ended->seconds() - outcome.began, 1e-9);
  outcome.times = engine.times(pending.engine_step);
  if (local_steps() > 1) {
    outcome.average_begin = pending.optimizer_ended->seconds();
    outcome.average_waited = pending.averaged->seconds() - outcome.average_begin;
  }
  outcome.times.exposed_s +=
      outcome.sums_waited + outcome.control_waited + outcome.average_waited + pending.local.waited;
  recorder.harvest();
  record_for(number);
  recorder.add(device::SpanName::step, 0, outcome.began, outcome.seconds);
  recorder.add(device::SpanName::optim_step, 0, outcome.optimizer_began,
               pending.optimizer_ended->seconds() - outcome.optimizer_began);
  for (const optim::StepResult::Span& span : outcome.matrices)
    recorder.add(device::SpanName::optim_matrices, 0, span.begin, span.seconds);
  return outcome;
}

void Session::check_replicas(std::int64_t step) {
  const device::Span span(recorder, device::SpanName::check_replicas);
  replicas_.check(step);
}

void Session::record_for(std::int64_t number) {
  recorder.at_step(number);
  recorder.at_micro_step(batches(number).micro_steps() - 1);
}

record::CheckpointFacts Session::load(const std::string& directory,
                                      std::vector<record::MutableSlab> slabs,
                                      comm::World& among) {
  // record/ fills only host memory: for a GPU a copy, which is sent to it afterwards.
  const bool copies = device->kind() != device::Kind::cpu;
  const std::vector<record::MutableSlab> there = slabs;
  std::vector<std::byte> memory;
  if (copies) {
    std::size_t bytes = 0;
    for (const auto& slab : slabs) bytes += slab.data.bytes();
    memory.resize(bytes);
    std::byte* next = memory.data();
    for (auto& slab : slabs) {
      slab.data.data = next;
      next += slab.data.bytes();
    }
  }
  auto facts =
      record::load_checkpoint(directory, plan, weights::model_facts(job.shape), slabs, among);
  if (copies) {
    for (std::size_t i = 0; i < slabs.size(); ++i)
      device->copy(there[i].data, slabs[i].data, *compute_stream);
    compute_stream->synchronize();
  }
  return facts;
}

std::vector<ConstView> Session::parameter_views() const {
  std::vector<ConstView> views;
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    views.emplace_back(engine.parameter(static_cast<ParameterIndex>(p)));
  return views;
}

std::optional<Evaluation> Session::evaluate(const comm::Wanted& interrupts) {
  if (job.evaluate.every_steps == 0 || !data.validation)
    return std::nullopt;
  const device::Span span(recorder, device::SpanName::evaluate);
  device::Stream& stream = *compute_stream;
  const std::int64_t micro = micro_batch_.sequences();
  const std::int64_t all = data.validation->num_samples();  // evaluate.batches may be any number
  const std::int64_t sequences =
      std::min(std::min(job.evaluate.batches, all) * job.batch.sequences, all);
  std::int64_t bytes = 0;
  ops::StreamSum sum(*device);
  const auto pass = [&](std::int64_t number, bool counts) {
    const std::int64_t first = number * micro;
    {
      const comm::World::AtWork reading(world);
      micro_batch_.load(*data.validation, first, std::min(micro, sequences - first), stream);
    }
    model.evaluate(micro_batch_.batch(), micro_batch_.losses(), hooks, stream);
    if (!counts)
      return;
    bytes += batches::bytes_of_tokens(micro_batch_.targets(), bytes_of_);
    sum.add_values(micro_batch_.losses(), stream);
  };
  const auto wanted = [&] {
    stream.synchronize();
    return interrupts();
  };
  // The model may gather parameters, which all ranks must do together.
  share_out(Passes::equal, divided_up(sequences, micro), world, pass,
            interrupts ? comm::Wanted(wanted) : comm::Wanted());
  sum.fetch(stream);
  stream.synchronize();
  ops::OrderFreeSum& losses = sum.fetched();
  losses.normalize();
  world.sum(losses.words());
  world.sum({&bytes, 1});
  const double nats = losses.value();
  return Evaluation{nats / static_cast<double>(sequences * shape.context),
                    session::bits_per_byte(nats, bytes)};
}

}  // namespace trireme::session
