// SPDX-License-Identifier: Apache-2.0
#include "train/journal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/packing.hpp"
#include "base/text.hpp"

#include "model/gpt.hpp"
#include "model/recompute_choice.hpp"

#include "comm/control/together.hpp"

#include "session/machine.hpp"
#include "session/scheduler.hpp"
#include "train/record_start.hpp"
#include "train/resume.hpp"

namespace trireme::train {
namespace {

std::vector<record::BucketRow> buckets_of(const layout::Plan& plan) {
  std::vector<record::BucketRow> rows;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const layout::Bucket& bucket = plan.buckets()[b];
    rows.push_back({.first_parameter = plan.parameter(bucket.parameters.front()).name,
                    .last_parameter = plan.parameter(bucket.parameters.back()).name,
                    .elements = bucket.elements,
                    .padding = plan.padding(static_cast<BucketIndex>(b)),
                    .shard_elements = bucket.shard_elements});
  }
  return rows;
}

std::string flops_formula(const model::GptShape& shape) {
  const auto whole = static_cast<std::int64_t>(shape.long_layers.count());
  std::string seen = "layers * heads * head_channels * context";
  if (whole > 0)
    seen = fmt::format("heads * head_channels * ({} * w * (2 - w / context) + {} * context)",
                       shape.layers - whole, whole);
  else if (shape.attention_window > 0)
    seen = "layers * heads * head_channels * w * (2 - w / context)";
  return fmt::format("per token: 6 * parameters + 6 * {}{}{}", seen,
                     shape.attention_window > 0 ? ", w = min(attention_window, context)" : "",
                     shape.masks_documents() ? ", what document_mask hides included" : "");
}

record::RunHeader header_of(const session::Session& session, std::vector<std::string> hosts) {
  const session::Job& job = session.job;
  const layout::Plan& plan = session.plan;
  record::RunHeader header{job.build, job.deck, std::move(hosts), buckets_of(plan)};
  const auto fact = [&](const char* name, std::string value) {
    header.facts.emplace_back(name, std::move(value));
  };
  fact("name", job.run.name);
  fact("device", session.device->description());
  fact("precision", name(session.dtype));
  header.counts = {{"ranks", plan.all_ranks()},
                   {"replicas", plan.replicas()},
                   {"parameters", plan.parameter_elements()},
                   {"buckets", std::ssize(plan.buckets())}};
  fact("tokenizer_hash", tokenizer_text(job));
  if (job.tokenizer) {
    fact("tokenizer_kind", job.tokenizer->kind());
    header.tokenizer = job.tokenizer->serialized();
  }
  fact("flops_formula", flops_formula(session.shape));
  fact("recompute", model::recompute_text(session.shape.recompute));
  return header;
}

/// What a rank has counted and measured since the last collect().
struct OfRank {
  double cpu_joules = 0, gpu_joules = 0;
  std::vector<double> seconds = {};  ///< by Journal::places_
  std::vector<device::TimeSample> samples = {};

  auto fields() { return std::tie(cpu_joules, gpu_joules, seconds, samples); }
};

std::vector<record::RankEnergyRow> energy_rows(const std::vector<OfRank>& of_ranks,
                                               std::int64_t first_step,
                                               std::int64_t last_step) {
  std::vector<record::RankEnergyRow> rows;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    if (const double cpu = of_ranks[rank].cpu_joules, gpu = of_ranks[rank].gpu_joules;
        !std::isnan(cpu) || !std::isnan(gpu))
      rows.push_back({first_step, last_step, static_cast<std::int64_t>(rank), cpu, gpu});
  return rows;
}

/// How the seconds in each kind of span differ over the ranks.
std::vector<record::RankSpanRow> spread_rows(const std::vector<OfRank>& of_ranks,
                                             const std::vector<std::size_t>& places,
                                             std::int64_t first_step,
                                             std::int64_t last_step) {
  std::vector<record::RankSpanRow> rows;
  std::vector<double> seconds(of_ranks.size());
  for (std::size_t name = 0; name + 1 < places.size(); ++name)
    for (std::size_t place = places[name]; place < places[name + 1]; ++place) {
      std::ranges::transform(of_ranks, seconds.begin(),
                             [&](const OfRank& rank) { return rank.seconds[place]; });
      const auto most = std::ranges::max_element(seconds) - seconds.begin();
      std::ranges::sort(seconds);
      if (seconds.back() > 0)
        rows.push_back({.first_step = first_step,
                        .last_step = last_step,
                        .name = static_cast<std::int64_t>(name),
                        .index = static_cast<std::int64_t>(place - places[name]),
                        .min_s = seconds.front(),
                        .median_s = seconds[(seconds.size() - 1) / 2],
                        .max_s = seconds.back(),
                        .max_rank = most});
    }
  return rows;
}

}  // namespace

Journal::Journal(session::Session& session,
                 const record::RunDirectory& directory,
                 std::optional<std::int64_t> resumed_step,
                 const record::NameValues& origin,
                 Log& log)
    : session_(session),
      job_(session.job),
      world_(session.world),
      recorder_(session.recorder),
      log_(log),
      sample_(sample_of(job_.record,
                        world_.size(),
                        job_.run.steps,
                        spans_of_a_step(job_.parallel,
                                        job_.batch.sizes().largest() /
                                            (job_.batch.micro_sequences * world_.size()),
                                        static_cast<std::int64_t>(session.plan.buckets().size()),
                                        job_.optimizer.kind == optim::Kind::muon))),
      collected_step_(resumed_step.value_or(0)) {
  std::size_t place = 0;
  for (const device::SpanInfo& name : device::span_names) {
    places_.push_back(place);
    place += *name.index == '\0' ? 1 : session.plan.buckets().size();
  }
  places_.push_back(place);
  auto hosts = world_.gather_all(world_.host());
  const double anchor = recorder_.anchor_calendar();
  const auto anchors = world_.gather_all({&anchor, 1});
  comm::on_first_rank(world_, [&] {
    if (!job_.record.metrics_file.empty())
      metrics_.emplace(job_.record.metrics_file, job_.run.name, directory.id(),
                       [&log](const std::string& text) { log.warning("{}", text); });
    auto header = header_of(session, std::move(hosts));
    header.facts.emplace_back("run_id", directory.id());
    header.facts.insert(header.facts.end(), origin.begin(), origin.end());
    auto [file, owes_validation, owes_evaluation] =
        open_record(directory.path(), header, resumed_step, job_, log);
    owes_[0] = owes_validation ? 1 : 0;
    owes_[1] = owes_evaluation ? 1 : 0;
    file.set_timing_fact("flops_per_token", model::flops_per_token(job_.shape), "FLOP");
    file.set_anchors(anchors);
    writer_.emplace(std::move(file));
  });
  world_.max(owes_);
}

void Journal::write(record::RunWriter::Entry entry, std::size_t bytes) {
  if (!writer_)
    return;
  std::optional<comm::World::AtWork> work;
  if (writer_->full())
    work.emplace(world_);
  writer_->write(std::move(entry), bytes);
}

Journal::Peak Journal::peak() const {
  const device::Device& device = *session_.device;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Peak peak{.resident = static_cast<std::int64_t>(usage.ru_maxrss) * 1024};  // KiB on Linux
  if (device.kind() == device::Kind::cuda) {  // where a run gives nothing back before its end
    const device::MemoryInfo memory = device.memory();
    peak.device = static_cast<std::int64_t>(memory.total_bytes - memory.free_bytes);
  }
  return peak;
}

void Journal::add_gathers(std::span<const reduce::GatherTimes> gathers, double step_began) {
  for (const reduce::GatherTimes& t : gathers) {
    const auto index = static_cast<std::uint32_t>(at(t.bucket));
    recorder_.add(device::SpanName::gather_ready, index, t.ready, t.start - t.ready);
    recorder_.add(device::SpanName::gather_bucket, index, t.start, t.end - t.start);
    if (t.wait_begin >= step_began)
      recorder_.add(device::SpanName::gather_wait, index, t.wait_begin, t.waited);
  }
}

double Journal::step(const record::StepRow& row, const session::StepOutcome& outcome) {
  const double waited_before = waited_in_train_s_;
  tokens_ += static_cast<double>(outcome.tokens);
  energy_.add(outcome.own_energy);
  const auto note = [&](double begin, double waited) {
    if (begin >= outcome.began)  // else it was between the steps
      (begin >= outcome.optimizer_began ? waited_in_optim_s_ : waited_in_train_s_) += waited;
  };
  for (const reduce::ReductionTimes& t : outcome.times.reductions) {
    const auto index = static_cast<std::uint32_t>(at(t.bucket));
    if (job_.parallel.reduces_micro_steps())
      recorder_.at_micro_step(t.round);
    recorder_.add(device::SpanName::reduce_ready, index, t.ready, t.start - t.ready);
    recorder_.add(device::SpanName::reduce_bucket, index, t.start, t.end - t.start);
    recorder_.add(device::SpanName::reduce_exposed, index, t.wait_begin, t.waited);
    note(t.wait_begin, t.waited);
  }
  add_gathers(outcome.times.gathers, outcome.began);
  for (const reduce::TransferTimes& t : outcome.times.transfers) {
    const auto index = static_cast<std::uint32_t>(at(t.bucket));
    recorder_.add(device::SpanName::matrices_travel, index, t.start, t.end - t.start);
    recorder_.add(device::SpanName::matrices_wait, index, t.wait_begin, t.waited);
  }
  for (const reduce::GatherTimes& t : outcome.times.gathers) note(t.wait_begin, t.waited);
  for (const auto& [name, begin, waited] :
       {std::tuple{device::SpanName::step_sums, outcome.sums_begin, outcome.sums_waited},
        {device::SpanName::step_control, outcome.control_begin, outcome.control_waited}})
    recorder_.add(name, 0, begin, waited);
  if (outcome.average_waited > 0)
    recorder_.add(device::SpanName::step_sums, 0, outcome.average_begin, outcome.average_waited);
  waited_in_optim_s_ += outcome.sums_waited;
  if (row.step % job_.record.every_steps == 0 || row.step == job_.run.steps)
    append(row);
  if (metrics_ && (metrics_->due(device::steady_seconds()) || row.step == job_.run.steps))
    write([this, row](record::RunRecord&) { metrics_->write(row); });
  return waited_in_train_s_ - waited_before;
}

void Journal::norms(std::int64_t step, std::span<const optim::LayerNorm> layers) {
  std::vector<record::NormRow> rows;
  for (const optim::LayerNorm& layer : layers)
    rows.push_back({.step = step,
                    .layer = std::ssize(rows),
                    .gradient = layer.gradient,
                    .weight = layer.weight,
                    .update = layer.update});
  append(rows);
}

void Journal::dropped(std::int64_t step, bool validation) {
  write([=](record::RunRecord& file) { file.append_dropped(step, validation); });
}

void Journal::flush(bool to_disk) {
  if (!writer_)
    return;
  const comm::World::AtWork work(world_);
  if (to_disk)
    writer_->write([](record::RunRecord& file) { file.sync(); });
  writer_->finish();
}

void Journal::checkpoint(const session::Saver::Saved& saved) {
  if (saved.copy_s > 0)
    recorder_.add(device::SpanName::checkpoint_copy, 0, saved.begin, saved.copy_s);
  recorder_.add(device::SpanName::checkpoint_stall, 0, saved.begin, saved.stall_s);
  recorder_.add(device::SpanName::checkpoint_write, 0, saved.begin,
                device::steady_seconds() - saved.begin);
  append(record::CheckpointRow{.step = saved.step,
                               .bytes = saved.files.bytes,
                               .copy_s = saved.copy_s,
                               .stall_s = saved.stall_s,
                               .write_s = saved.files.seconds});
}

void Journal::collect(std::int64_t step) {
  const double begin = device::steady_seconds();
  const bool counts_host = world_.local_rank() == 0;
  OfRank mine{.cpu_joules = counts_host ? energy_.cpu() : std::nan(""),
              .gpu_joules = energy_.gpu(),
              .seconds = std::vector<double>(places_.back())};
  for (const device::TimeSample& sample : recorder_.samples()) {
    mine.seconds[places_[sample.name] + sample.index] += sample.duration_s;
    if (sample_.has_rank(world_.rank()) && sample_.has_step(sample.step))
      mine.samples.push_back(sample);
  }
  auto all = world_.gather(pack(mine));
  const std::int64_t first_step = std::exchange(collected_step_, step) + 1;
  energy_ = {};
  recorder_.clear();
  comm::on_first_rank(world_, [&] {  // a failure so far ends all ranks
    std::size_t size = 0;
    for (const std::string& one : all) size += one.size();
    write(
        [=, places = places_, all = std::move(all)](record::RunRecord& file) {
          std::vector<OfRank> of_ranks;
          for (const std::string& one : all) of_ranks.push_back(unpack<OfRank>(one));
          if (first_step <= step)
            file.append(energy_rows(of_ranks, first_step, step));
          file.append(spread_rows(of_ranks, places, first_step, step));
          for (const OfRank& rank : of_ranks)
            if (!rank.samples.empty())
              file.append(rank.samples);
        },
        size);
  });
  if (recorder_.enabled())
    recorder_.add(device::SpanName::record_collect, 0, begin, device::steady_seconds() - begin);
}

void Journal::compare_with_ceiling(MeasureCeiling measure_ceiling) {
  if (!recorder_.enabled())
    return;
  peak_ = peak();  // measuring needs memory of its own
  flush();
  const auto whole = recorder_.summary(device::SpanName::step);
  if (whole.count == 0)  // on all ranks alike: this start only made up an evaluation
    return;
  const double ceiling = measure_ceiling(session_, world_);
  comm::on_first_rank(world_, [&] {
    if (ceiling == 0) {
      log_.warning("skipped the matmul ceiling: there is not enough free memory to measure it");
      return;
    }
    // Steps that grow have no median that stands for all.
    const bool grows = session_.sizes.changes();
    const double rate =
        grows ? tokens_ / whole.total_s
              : static_cast<double>(job_.batch.sequences * job_.shape.context) / whole.median_s;
    const double achieved =
        rate * model::flops_per_token(job_.shape) / static_cast<double>(world_.size());
    write([=](record::RunRecord& file) {
      file.set_timing_fact("ceiling_flops_per_s", ceiling, "FLOP/s of one rank");
      file.set_timing_fact("achieved_flops_per_s", achieved, "FLOP/s of one rank");
      file.set_timing_fact("share_of_ceiling", achieved / ceiling, "1");
    });
    log_.info(
        "{} step: {} tokens/s, {:.4g} TFLOP/s per rank ({:.1f} % of the {:.4g} TFLOP/s that {} "
        "matrix products alone reach on this machine)",
        grows ? "mean" : "median", count_text(rate), achieved / 1e12, 100 * achieved / ceiling,
        ceiling / 1e12, name(session_.dtype));
  });
}

void Journal::close(std::int64_t step, const session::Saver& saver, bool whole) {
  // No step follows, so none waited for these.
  add_gathers(session_.engine.take_last_gathers(), std::numeric_limits<double>::infinity());
  collect(step);
  const Peak highest_here = peak_ ? *peak_ : peak();
  const std::vector<std::int64_t> slots = session_.optimizer.state_bytes();
  std::int64_t highest[] = {highest_here.resident, highest_here.device,
                            std::accumulate(slots.begin(), slots.end(), std::int64_t{0}),
                            static_cast<std::int64_t>(session_.communicator->peer_bytes())};
  world_.max(highest);
  std::int64_t dropped[] = {static_cast<std::int64_t>(recorder_.dropped())};
  world_.sum(dropped);
  const auto end = [&](record::RunRecord& file) {
    file.set_memory("gradients", static_cast<std::int64_t>(session_.engine.gradient_bytes()) +
                                     session_.optimizer.outer_bytes());
    file.set_memory("parameters", static_cast<std::int64_t>(session_.engine.parameter_bytes()));
    file.set_memory("optimizer", highest[2]);
    if (const std::size_t matrices = session_.optimizer.matrix_bytes(); matrices > 0)
      file.set_memory("matrices", static_cast<std::int64_t>(matrices));
    file.set_memory("activations", static_cast<std::int64_t>(session_.model.activation_bytes()));
    file.set_memory("peers", highest[3]);
    file.set_memory("snapshot", static_cast<std::int64_t>(saver.snapshot_bytes()));
    std::int64_t scratch = 0;
    for (const device::ScratchPool::Usage& block : session_.scratch.usage()) {
      const auto bytes = static_cast<std::int64_t>(block.high_water_bytes);
      scratch += bytes;
      if (bytes > 0)
        file.set_memory("scratch." + block.name, bytes);
    }
    file.set_memory("scratch", scratch);
    file.set_memory("peak_resident", highest[0]);
    if (highest[1] > 0)
      file.set_memory("peak_device", highest[1]);
    file.set_timing_fact("dropped", static_cast<double>(dropped[0] + file.spans_left_out()),
                         "samples");
    if (const auto joules = session::slurm_joules()) {
      file.set_timing_fact("slurm_joules", *joules, "J");
      log_.info("Slurm counted {:.4g} J on the hosts of this job step", *joules);
    }
    file.sync();
    try {
      file.close();
    } catch (const StorageError& problem) {
      const std::string text =
          fmt::format("{}. All rows are in {}. Remove the cause, then run `trireme record RUN_DIR`",
                      problem.what(), record::run_log_name);
      if (whole)
        throw StorageError("record", "write run.h5", text);
      log_.warning("cannot write run.h5: {}", text);
    }
  };
  comm::on_first_rank(world_, [&] {
    writer_->write(end);
    writer_->finish();
    writer_.reset();
  });
}

void Journal::print_summary() const {
  const auto whole = recorder_.summary(device::SpanName::step);
  if (whole.count == 0)
    return;
  log_.info("where the time of a step went (rank 0, median {}):", duration_text(whole.median_s));
  for (const device::SpanInfo& known : device::span_names) {
    const auto part = recorder_.summary(known.name);
    if (part.count == 0 || !std::string_view(known.help).starts_with("Within step"))
      continue;
    const double inside = known.name == device::SpanName::model_train  ? waited_in_train_s_
                          : known.name == device::SpanName::optim_step ? waited_in_optim_s_
                                                                       : 0;
    log_.info("  {:<16} {:>6.2f} %", known.dotted, 100 * (part.total_s - inside) / whole.total_s);
  }
}

}  // namespace trireme::train
