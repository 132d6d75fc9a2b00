// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <omp.h>

#include "base/text.hpp"

#include "device/device.hpp"

#include "comm/communicator.hpp"
#include "comm/placement.hpp"
#include "comm/together.hpp"
#include "data/dataset.hpp"
#include "data/open.hpp"
#include "timing/recorder.hpp"

#include "model/gpt.hpp"
#include "reduce/engine.hpp"

#include "optim/adamw.hpp"
#include "record/checkpoint.hpp"
#include "record/run_directory.hpp"

#include "train/batches.hpp"
#include "train/evaluator.hpp"
#include "train/exchange.hpp"
#include "train/journal.hpp"
#include "train/machine.hpp"
#include "train/microbatch.hpp"
#include "train/model_hooks.hpp"
#include "train/progress.hpp"
#include "train/saver.hpp"
#include "train/stop.hpp"
#include "train/text_sample.hpp"

namespace trireme::train {
namespace {

/// Samples travel to rank 0 this often.
constexpr std::int64_t collect_every_steps = 50;

/// The data of this run, the same on every rank: rank 0 builds the token cache, then all map it.
data::Split open_data(const Job& job, const std::string& directory, comm::World& world, Log& log) {
  const data::Setup setup{job.data, directory + "/tokens", static_cast<std::uint64_t>(job.run.seed),
                          job.shape.vocabulary};
  comm::on_first_rank(world, [&] { data::prepare_tokens(setup, log); });
  std::optional<data::Split> split;
  comm::together(world, [&] {
    split = data::split(data::open_tokens(setup),
                        {job.shape.context, job.batch.sequences, job.shape.vocabulary,
                         job.data.validation_fraction, static_cast<std::uint64_t>(job.run.seed)});
  });
  return std::move(*split);
}

layout::Plan make_plan(const Job& job, int ranks) {
  return {model::parameter_table(job.shape),
          {ranks, job.parallel.bucket_elements, job.parallel.padding}};
}

/// The memory, streams and rooms of one rank's run. Member order is construction order, and its
/// reverse the order of teardown: what uses a stream or a communicator goes before it.
class Trainer {
 public:
  Trainer(const Job& job, comm::World& world, Log& log, double started_at);
  ExitCode run();

 private:
  void bind_model();
  /// Initial values or the newest checkpoint, and the files of the run.
  void start();
  void micro_steps(ops::OrderFreeSum& losses);
  Agreed step(std::int64_t number);
  /// What is due after step `number`, in the order of the header.
  void between_steps(std::int64_t number, const Agreed& agreed);
  void evaluate(std::int64_t step);
  void print_sample(std::int64_t step);
  void save(std::int64_t step);
  void finish();

  [[nodiscard]] bool due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == job_.run.steps);
  }

  // Constant after construction.
  const Job& job_;
  comm::World& world_;
  Log& log_;
  const Batches batches_;
  std::unique_ptr<device::Device> device_;
  const DType dtype_;
  record::RunDirectory directory_;
  data::Split data_;

  // The compute stream and what works on it.
  std::unique_ptr<device::Stream> compute_;
  layout::Plan plan_;
  std::unique_ptr<comm::Communicator> communicator_;
  reduce::Engine engine_;
  model::Gpt model_;
  optim::AdamW optimizer_;
  EngineHooks hooks_;
  MicroBatch micro_batch_;
  std::optional<Evaluator> evaluator_;
  Exchange exchange_;

  // What the run says and leaves behind.
  timing::Recorder recorder_;
  Saver saver_;
  std::optional<Journal> journal_;
  std::optional<Progress> progress_;
  SignalScope signals_;
  Walltime walltime_;

  std::int64_t first_step_ = 1;
  std::uint64_t next_sample_ = 0;
  std::int64_t saved_step_ = -1;  ///< the step of the newest checkpoint
  double first_validation_ = -1, last_validation_ = -1;
};

Trainer::Trainer(const Job& job, comm::World& world, Log& log, double started_at)
    : job_(job),
      world_(world),
      log_(log),
      batches_{job.batch.sequences, job.batch.micro_sequences, world.size()},
      device_(open_device(job.run.device, choose_threads(job.run.threads, world))),
      dtype_(choose_dtype(job.run.precision, *device_)),
      directory_(job.run.directory, world),
      data_(open_data(job, directory_.path(), world, log)),
      compute_(device_->make_stream(device::StreamMode::inlined, "compute")),
      plan_(make_plan(job, world.size())),
      communicator_(
          comm::make_communicator(job.parallel.transport, job.parallel.reduction, world, *device_)),
      engine_(
          plan_, dtype_, job.optimizer.sharded, job.parallel, *communicator_, *device_, *compute_),
      model_(*device_,
             job.shape,
             dtype_,
             job.batch.micro_sequences,
             static_cast<std::uint64_t>(job.run.seed)),
      optimizer_(job.optimizer, engine_, world, *device_, *compute_),
      hooks_(engine_),
      micro_batch_(*device_, job.batch.micro_sequences, job.shape.context),
      exchange_(world),
      recorder_({.enabled = job.record.spans, .rank = static_cast<std::uint32_t>(world.rank())},
                device_.get()),
      saver_(job, plan_, optimizer_, *device_, world),
      walltime_(job.run.walltime.value_or({}).seconds, started_at) {
  batches_.validate();
  bind_model();
  if (job.evaluate.every_steps > 0 && data_.validation)
    evaluator_.emplace(
        *data_.validation,
        std::min(job.evaluate.batches * job.batch.sequences, data_.validation->num_samples()),
        micro_batch_, world);
}

void Trainer::bind_model() {
  std::vector<ConstView> parameters;
  std::vector<View> gradients;
  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    parameters.emplace_back(engine_.parameter(static_cast<ParameterIndex>(p)));
    gradients.push_back(engine_.gradient(static_cast<ParameterIndex>(p)));
  }
  model_.bind(std::move(parameters), std::move(gradients));
}

void Trainer::start() {
  std::optional<Saver::Resumed> resumed;
  {
    const timing::Span span(recorder_, timing::Name::checkpoint_read);
    resumed = saver_.load_newest(directory_.path(), log_);
  }
  if (resumed) {
    first_step_ = resumed->step + 1;
    next_sample_ = resumed->next_sample;
    saved_step_ = resumed->step;
  } else {
    saver_.initialize(*compute_);
  }
  if (first_step_ > job_.run.steps)
    return;
  comm::on_first_rank(world_, [&] { log_.also_to_file(directory_.file("log.txt")); });
  journal_.emplace(job_, plan_, *device_, dtype_, directory_,
                   resumed ? std::optional(resumed->step) : std::nullopt, recorder_, world_);
  log_.info("{}: {} parameters in {} buckets, {} ranks, {}, {} micro-steps of {} x {} tokens",
            job_.run.name, count_text(static_cast<double>(plan_.parameter_elements())),
            plan_.buckets().size(), world_.size(), name(dtype_), batches_.micro_steps(),
            batches_.micro_sequences, job_.shape.context);
  log_.info(
      "data: {} training tokens, {} validation tokens",
      count_text(static_cast<double>(data_.train.num_tokens())),
      data_.validation ? count_text(static_cast<double>(data_.validation->num_tokens())) : "0");
  if (world_.rank() == 0)
    progress_.emplace(log_, terminal_listens(), first_step_, job_.run.steps,
                      model::flops_per_token(job_.shape));
}

void Trainer::micro_steps(ops::OrderFreeSum& losses) {
  const auto first = static_cast<std::int64_t>(next_sample_);
  for (std::int64_t micro = 0; micro < batches_.micro_steps(); ++micro) {
    recorder_.at_micro_step(micro);
    timing::Span loading(recorder_, timing::Name::data_next);
    micro_batch_.load(data_.train, batches_.first_sample(first, world_.rank(), micro),
                      batches_.micro_sequences);
    loading.end();
    const timing::Span training(recorder_, timing::Name::model_train);
    const bool last = micro + 1 == batches_.micro_steps();
    model_.train(micro_batch_.batch(), micro_batch_.losses(), last, hooks_, *compute_);
    ops::add_values(losses, micro_batch_.losses(), *compute_);
  }
  next_sample_ += static_cast<std::uint64_t>(batches_.sequences);
}

Agreed Trainer::step(std::int64_t number) {
  recorder_.at_step(number);
  timing::Span whole(recorder_, timing::Name::step);
  const double begin = timing::steady_seconds();
  ops::OrderFreeSum losses;
  engine_.begin_step();
  micro_steps(losses);
  engine_.finish_reduction();
  timing::Span updating(recorder_, timing::Name::optim_step);
  const auto result = optimizer_.step(
      number, job_.run.steps, 1.0 / static_cast<double>(world_.size() * batches_.micro_steps()));
  updating.end();

  Requests requests = signals_.take();
  if (world_.rank() == 0 && walltime_.ends(timing::steady_seconds()))
    requests.stop = 1;
  const std::int64_t tokens = batches_.sequences * job_.shape.context;
  const Agreed agreed = exchange_.agree(losses, tokens, requests);
  whole.end();

  const double seconds = timing::steady_seconds() - begin;
  walltime_.step_took(seconds);
  const double rate = static_cast<double>(tokens) / seconds;
  journal_->step({.step = number,
                  .loss = agreed.mean_loss,
                  .grad_norm = result.grad_norm,
                  .learning_rate = result.learning_rate,
                  .tokens = static_cast<std::int64_t>(next_sample_) * job_.shape.context,
                  .seconds = seconds,
                  .tokens_per_s = rate,
                  .flops_per_s = rate * model::flops_per_token(job_.shape),
                  .exposed_s = engine_.exposed_seconds(),
                  .allocations = 0},
                 engine_);
  if (progress_)
    progress_->step({number, agreed.mean_loss, result.grad_norm, result.learning_rate, seconds,
                     static_cast<double>(tokens)});
  return agreed;
}

void Trainer::between_steps(std::int64_t number, const Agreed& agreed) {
  if (due(number, collect_every_steps))
    journal_->collect();
  if (evaluator_ && due(number, job_.evaluate.every_steps))
    evaluate(number);
  if (due(number, job_.sample.every_steps))
    print_sample(number);
  if (due(number, job_.checkpoint.every_steps) || agreed.checkpoint || agreed.stop)
    save(number);
}

void Trainer::evaluate(std::int64_t step) {
  timing::Span span(recorder_, timing::Name::evaluate);
  const double loss = evaluator_->mean_loss(model_, hooks_, *compute_);
  span.end();
  if (first_validation_ < 0)
    first_validation_ = loss;
  last_validation_ = loss;
  journal_->validation(step, loss);
  if (progress_)
    progress_->clear();
  log_.info("step {:>6}/{}  validation loss {:.4f} over {} sequences", step, job_.run.steps, loss,
            evaluator_->sequences());
}

void Trainer::print_sample(std::int64_t step) {
  const timing::Span span(recorder_, timing::Name::sample);
  engine_.wait_for_parameters();
  comm::on_first_rank(world_, [&] {
    const auto text =
        continue_text(model_, *device_,
                      {job_.sample.prompt, job_.sample.tokens, job_.sample.temperature,
                       static_cast<std::uint64_t>(job_.run.seed)},
                      hooks_, *compute_);
    progress_->clear();
    log_.info("sample after step {}:\n{}{}\n", step, for_terminal(job_.sample.prompt),
              for_terminal(text));
  });
}

void Trainer::save(std::int64_t step) {
  if (saved_step_ == step)
    return;
  timing::Span span(recorder_, timing::Name::checkpoint_write);
  const double begin = timing::steady_seconds();
  const auto saved = saver_.save(directory_.path(), step, next_sample_);
  span.end();
  const double seconds = timing::steady_seconds() - begin;
  walltime_.checkpoint_took(seconds);
  saved_step_ = step;
  if (progress_)
    progress_->clear();
  log_.info("step {:>6}/{}  checkpoint {} ({} in {})", step, job_.run.steps, saved.directory,
            bytes_text(static_cast<double>(saved.bytes)), duration_text(seconds));
}

void Trainer::finish() {
  engine_.wait_for_parameters();
  progress_.reset();
  if (first_validation_ >= 0)
    log_.info("validation loss {:.4f} before, {:.4f} after", first_validation_, last_validation_);
  if (world_.rank() == 0)
    journal_->print_summary(log_);
  journal_->close(engine_, optimizer_.master_bytes() + optimizer_.moment_bytes(),
                  model_.activation_bytes());
  log_.info("everything lies in {}: run.h5 (the record), log.txt, deck.resolved.yaml, checkpoints/",
            directory_.path());
}

ExitCode Trainer::run() {
  start();
  if (first_step_ > job_.run.steps) {
    log_.info(
        "the run in {} is finished: step {} of {}. To go on, raise run.steps; to start anew, "
        "name another run.directory",
        directory_.path(), first_step_ - 1, job_.run.steps);
    return ExitCode::done;
  }
  if (evaluator_ && first_step_ == 1)
    evaluate(0);
  for (std::int64_t number = first_step_; number <= job_.run.steps; ++number) {
    const Agreed agreed = step(number);
    between_steps(number, agreed);
    if (agreed.stop && number < job_.run.steps) {
      finish();
      log_.info(
          "stopped after step {} of {} behind a checkpoint; start the same command again to go on",
          number, job_.run.steps);
      return ExitCode::requeue;
    }
  }
  finish();
  return ExitCode::done;
}

}  // namespace

ExitCode train(const Job& job, comm::World& world, Log& log, double started_at) {
  const int threads = choose_threads(job.run.threads, world);
  omp_set_num_threads(threads);
  for (const auto& [text, warning] : comm::describe(comm::gather_placement(world, threads)))
    warning ? log.warning("{}", text) : log.info("{}", text);
  return Trainer(job, world, log, started_at).run();
}

}  // namespace trireme::train
