// SPDX-License-Identifier: Apache-2.0
#include "bench_engine.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "base/quantile.hpp"
#include "base/round_up.hpp"

#include "ops/elementwise.hpp"
#include "ops/optimizer/adamw.hpp"

#include "comm/control/temporary_directory.hpp"

#include "batches/batches.hpp"

#include "optim/rule.hpp"
#include "session/machine.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"

namespace trireme::bench {
namespace {

constexpr int warmups = 3;

/// The plain loop: flat arrays and only the arithmetic.
class Plain {
 public:
  Plain(const session::Job& job,
        const model::GptShape& shape,
        const batches::Split& data,
        comm::World& world,
        device::Device& device,
        DType dtype);
  /// The loss, as a sum over tokens.
  double step(std::int64_t number);

 private:
  void update(std::int64_t number);

  const session::Job& job_;
  const batches::Split& data_;
  comm::World& world_;
  const batches::Batches batches_;
  const std::vector<layout::Parameter> table_;
  const std::unique_ptr<device::Stream> stream_;
  device::ScratchPool scratch_;
  model::Gpt model_;
  nn::Hooks hooks_;
  session::MicroBatch micro_batch_;
  std::unique_ptr<comm::Communicator> communicator_;
  device::Buffer parameters_, gradients_, master_, m_, v_;
  std::unique_ptr<comm::Shards> whole_gradient_;
  std::vector<std::int64_t> begins_;  // by parameter, in the flat arrays
  std::int64_t elements_ = 0;
  std::int64_t next_sample_ = 0;
  ops::StreamSum losses_, squares_;
  device::Buffer words_, sum_, norm_;  // of squares_
};

Plain::Plain(const session::Job& job,
             const model::GptShape& shape,
             const batches::Split& data,
             comm::World& world,
             device::Device& device,
             DType dtype)
    : job_(job),
      data_(data),
      world_(world),
      batches_{job.batch.sequences, job.batch.micro_sequences, world.size()},
      table_(model::parameter_table(job.shape)),
      stream_(device.make_stream(device::StreamMode::inlined, "plain")),
      scratch_(device, {.pooled = job.memory.pool}),
      model_(device,
             shape,
             dtype,
             job.batch.micro_sequences,
             static_cast<std::uint64_t>(job.run.seed),
             &scratch_,
             session::operation_options(job, device)),
      micro_batch_(device, job.batch.micro_sequences, job.shape.context),
      communicator_(
          comm::make_communicator(job.parallel.transport, job.parallel.reduction, world, device)),
      losses_(device),
      squares_(device),
      words_(device.allocate(ops::num_words * sizeof(std::int64_t), "plain sum")),
      sum_(device.allocate(sizeof(double), "plain sum")),
      norm_(device.allocate(sizeof(ops::GradientNorm), "plain norm")) {
  constexpr std::int64_t aligned = 64;  // elements, as in the engine's buckets
  for (const layout::Parameter& parameter : table_) {
    begins_.push_back(elements_);
    elements_ += rounded_up(parameter.elements(), aligned);
  }
  const std::int64_t unit = aligned * world.size();
  elements_ = rounded_up(elements_, unit);
  const auto bytes = [&](DType type) {
    return static_cast<std::size_t>(elements_) * size_bytes(type);
  };
  parameters_ = device.allocate(bytes(dtype), "plain parameters");
  gradients_ = communicator_->allocate(bytes(DType::f32), "plain gradients");
  whole_gradient_ = communicator_->shards(gradients_.view(DType::f32));
  const DType moments = optim::dtype_of(job.optimizer.moment_dtype);
  m_ = device.allocate(bytes(moments), "plain first moments");
  v_ = device.allocate(bytes(moments), "plain second moments");
  if (dtype != DType::f32)
    master_ = device.allocate(bytes(DType::f32), "plain master weights");
  const View master = (dtype == DType::f32 ? parameters_ : master_).view(DType::f32);
  std::vector<ConstView> parameters;
  std::vector<View> gradients;
  const model::Layers layers(job.shape);
  for (std::size_t p = 0; p < table_.size(); ++p) {
    const std::int64_t elements = table_[p].elements();
    const device::Buffer values = device.allocate_shared_with_host(
        static_cast<std::size_t>(elements) * sizeof(float), "initial values");
    layers.registry.initialize(static_cast<ParameterIndex>(p),
                               static_cast<std::uint64_t>(job.run.seed), values.view(DType::f32));
    device.copy(master.slice(begins_[p], elements), values.view(DType::f32), *stream_);
    stream_->synchronize();
    parameters.emplace_back(parameters_.view(dtype).slice(begins_[p], elements));
    gradients.push_back(gradients_.view(DType::f32).slice(begins_[p], elements));
  }
  if (dtype != DType::f32)
    run(ops::Cast{.to = parameters_.view(dtype), .from = master}, *stream_);
  model_.bind(std::move(parameters), std::move(gradients));
}

double Plain::step(std::int64_t number) {
  losses_.clear(*stream_);
  stream_->device().fill_zero(gradients_.view(DType::f32), *stream_);
  for (std::int64_t micro = 0; micro < batches_.micro_steps(); ++micro) {
    micro_batch_.load(data_.train, batches_.micro_batch(next_sample_, world_.rank(), micro).first,
                      batches_.micro_sequences, *stream_);
    const bool last = micro + 1 == batches_.micro_steps();
    model_.train(micro_batch_.batch(), micro_batch_.losses(), last, hooks_, *stream_);
    losses_.add_values(micro_batch_.losses(), *stream_);
  }
  next_sample_ += batches_.sequences;
  losses_.fetch(*stream_);
  communicator_->all_reduce(*whole_gradient_, BucketIndex{0}, *stream_);
  update(number);
  stream_->synchronize();
  ops::OrderFreeSum& loss = losses_.fetched();
  loss.normalize();
  world_.sum(loss.words());
  return loss.value();
}

void Plain::update(std::int64_t number) {
  const View gradients = gradients_.view(DType::f32);
  const double scale = 1.0 / static_cast<double>(world_.size() * batches_.micro_steps());
  squares_.clear(*stream_);
  squares_.add_squares(gradients, *stream_);
  squares_.store(words_.view(DType::i64), *stream_);
  ops::values_of_words(sum_.view(DType::f64), words_.view(DType::i64), *stream_);
  auto& norm = *reinterpret_cast<ops::GradientNorm*>(norm_.data());
  ops::gradient_norm(norm, sum_.view(DType::f64), {scale, job_.optimizer.clip_norm}, *stream_);
  const ops::AdamwStep decayed =
      optim::step_of(job_.optimizer, number, job_.schedule_steps(), number);
  ops::AdamwStep undecayed = decayed;
  undecayed.weight_decay = 0;
  const bool fp32 = master_.bytes() == 0;
  const View all = parameters_.view(fp32 ? DType::f32 : DType::bf16);
  const DType moments = optim::dtype_of(job_.optimizer.moment_dtype);
  const RandomKey key = RandomKey::of(static_cast<std::uint64_t>(job_.run.seed), Draw::moments);
  for (std::size_t p = 0; p < table_.size(); ++p) {
    const auto part = [&](View whole) { return whole.slice(begins_[p], table_[p].elements()); };
    run(ops::Adamw{.parameter = part(all),
                   .master = part(fp32 ? all : master_.view(DType::f32)),
                   .m = part(m_.view(moments)),
                   .v = part(v_.view(moments)),
                   .gradient = part(gradients),
                   .step = table_[p].decay ? decayed : undecayed,
                   .rounding = {key, static_cast<std::uint64_t>(number), p, 0},
                   .norm = &norm},
        *stream_);
  }
}

template <class Action>
double timed(Action&& action) {
  const double begin = device::steady_seconds();
  action();
  return device::steady_seconds() - begin;
}

/// Throws unless the loop adds in the same order as the engine.
void expect_same_additions(const session::Job& job, const comm::World& world) {
  if (const std::int64_t unit = job.batch.micro_sequences * world.size();
      job.batch.sequences % unit != 0)
    throw UserError(fmt::format(
        "bench engine gives every rank the same number of full micro-batches, but batch.sequences "
        "is {}. Use a multiple of {}.",
        job.batch.sequences, unit));
  if (job.optimizer.kind != optim::Kind::adamw)
    throw UserError(fmt::format(
        "bench engine compares with a loop of AdamW, but optimizer.kind is {}. Use adamw.",
        word(job.optimizer.kind)));
  if (world.size() == 1)
    return;
  if (world.local_size() < world.size())
    throw UserError("bench engine needs all ranks on one host");
  if (job.parallel.gradient_dtype != reduce::GradientDType::fp32 ||
      job.parallel.reduction == comm::Reduction::tree)
    throw UserError(
        "bench engine on several ranks compares sums of whole gradients in fp32. Use "
        "parallel.gradient_dtype=fp32 and parallel.reduction=sum or ordered.");
  if (job.parallel.transport == comm::Transport::mpi &&
      job.parallel.reduction == comm::Reduction::sum)
    throw UserError(
        "bench engine compares bits, but with transport mpi the order of additions depends on the "
        "buckets. Use parallel.reduction=ordered.");
}

}  // namespace

EngineBench bench_engine(const session::Job& job, comm::World& world, Log& log, int steps) {
  expect_same_additions(job, world);
  omp_set_num_threads(session::choose_threads(job.run.threads, world));
  const comm::TemporaryDirectory cache(world);
  const batches::Split data = open_data(job, cache.path(), world, log);
  session::Session session(job, data, world);
  session::Saver(session, world).initialize();
  Plain plain(job, session.shape, data, world, *session.device, session.dtype);

  EngineBench result;
  result.parameters = session.plan.parameter_elements();
  result.buckets = session.plan.buckets().size();
  result.steps = steps;
  result.ranks = world.size();
  const auto tokens = static_cast<double>(job.batch.sequences * job.shape.context);
  std::vector<double> engine_s, plain_s, ratios;
  for (int i = 1 - warmups; i <= steps; ++i) {
    const std::int64_t number = i + warmups;
    double engine_loss = 0, plain_loss = 0, engine_took = 0, plain_took = 0;
    const auto run_engine = [&] {
      world.barrier();
      engine_took = timed([&] {
        engine_loss = session.step(number, [] { return session::Requests{}; }).loss;
        session.engine.wait_for_parameters();
      });
      session.recorder.clear();
    };
    if (i % 2 == 0)
      run_engine();
    world.barrier();
    plain_took = timed([&] { plain_loss = plain.step(number) / tokens; });
    if (i % 2 != 0)
      run_engine();
    TRIREME_EXPECT(engine_loss == plain_loss, "the loss of step {} is {} with the engine, {} plain",
                   number, engine_loss, plain_loss);
    if (i < 1)
      continue;
    engine_s.push_back(engine_took);
    plain_s.push_back(plain_took);
    ratios.push_back(engine_took / plain_took);
  }
  result.engine_s = median(engine_s);
  result.plain_s = median(plain_s);
  result.ratio = median(ratios);
  result.ratio_low = quantile(ratios, 0.25);
  result.ratio_high = quantile(ratios, 0.75);
  return result;
}

std::string engine_table(const EngineBench& r) {
  return fmt::format(
      "{:<12}{:>12}{:>10}{:>8}{:>14}\n{:<12}{:>12}{:>10}{:>8}{:>14.3f}\n{:<12}{:>12}{:>10}{:>8}"
      "{:>14.3f}\nengine / plain, median over pairs of consecutive steps: {:.4f} (half of them "
      "between "
      "{:.4f} and {:.4f}), {} {}\n",
      "operation", "parameters", "buckets", "steps", "median ms", "engine", r.parameters, r.buckets,
      r.steps, r.engine_s * 1e3, "plain", r.parameters, 0, r.steps, r.plain_s * 1e3, r.ratio,
      r.ratio_low, r.ratio_high, r.ranks, r.ranks == 1 ? "rank" : "ranks");
}

}  // namespace trireme::bench
