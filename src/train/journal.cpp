// SPDX-License-Identifier: Apache-2.0
#include "train/journal.hpp"

#include <cstring>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/text.hpp"

#include "comm/together.hpp"

#include "model/gpt.hpp"

namespace trireme::train {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.flush();
  if (!out)
    throw StorageError("file system", "write " + path, std::strerror(errno), __FILE__, __LINE__);
}

record::RunHeader header_of(const Job& job,
                            const layout::Plan& plan,
                            const device::Device& device,
                            DType dtype,
                            std::vector<std::string> hosts) {
  record::RunHeader header{job.build, job.deck, std::move(hosts)};
  const auto fact = [&](const char* name, std::string value) {
    header.facts.emplace_back(name, std::move(value));
  };
  fact("name", job.run.name);
  fact("device", device.description());
  fact("precision", name(dtype));
  fact("ranks", std::to_string(plan.ranks()));
  fact("parameters", std::to_string(plan.parameter_elements()));
  fact("buckets", std::to_string(plan.buckets().size()));
  fact("flops_formula", "per token: 6 * parameters + 6 * layers * channels * context");
  return header;
}

/// Highest resident memory of this process so far; ru_maxrss is in KiB on Linux.
std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

Journal::Journal(const Job& job,
                 const layout::Plan& plan,
                 const device::Device& device,
                 DType dtype,
                 const record::RunDirectory& directory,
                 std::optional<std::int64_t> resumed_step,
                 timing::Recorder& recorder,
                 comm::World& world)
    : job_(job), world_(world), recorder_(recorder) {
  auto hosts = world.gather_all(world.host());
  const double anchor = recorder.anchor_calendar();
  const auto anchors = world.gather_all({&anchor, 1});
  comm::on_first_rank(world, [&] {
    const auto header = header_of(job, plan, device, dtype, std::move(hosts));
    file_.emplace(resumed_step
                      ? record::RunFile::resume(directory.run_file(), header, *resumed_step)
                      : record::RunFile::create(directory.run_file(), header));
    file_->set_timing_fact("flops_per_token", model::flops_per_token(job.shape), "FLOP");
    file_->set_anchors(anchors);
    write_text(directory.file("deck.resolved.yaml"), job.resolved_deck);
  });
}

void Journal::step(const record::StepRow& row, const reduce::Engine& engine) {
  const auto times = engine.times();
  for (std::size_t b = 0; b < times.size() && recorder_.enabled(); ++b) {
    const auto index = static_cast<std::uint32_t>(b);
    const reduce::BucketTimes& t = times[b];
    recorder_.add(timing::Name::reduce_bucket, index, t.start, t.end - t.start);
    recorder_.add(timing::Name::reduce_exposed, index, t.end - t.waited, t.waited);
    recorder_.add(timing::Name::gather_bucket, index, t.gather_start,
                  t.gather_end - t.gather_start);
    recorder_.add(timing::Name::gather_wait, index, t.gather_end - t.gather_waited,
                  t.gather_waited);
  }
  if (file_ && (row.step % job_.record.every_steps == 0 || row.step == job_.run.steps))
    file_->append(row);
}

void Journal::validation(std::int64_t step, double loss) {
  if (file_)
    file_->append_validation(step, loss);
}

void Journal::collect() {
  if (!recorder_.enabled())
    return;
  recorder_.harvest();
  const auto mine = recorder_.samples();
  std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size_bytes());
  const auto all = world_.gather_all(bytes);
  recorder_.clear();
  comm::on_first_rank(world_, [&] {
    std::vector<timing::Sample> samples;
    for (const std::string& one : all) {
      samples.resize(one.size() / sizeof(timing::Sample));
      std::memcpy(samples.data(), one.data(), one.size());
      file_->append_samples(samples);
    }
  });
}

void Journal::close(const Session& session) {
  collect();
  std::int64_t highest[] = {peak_resident_bytes()};
  world_.max(highest);
  std::int64_t dropped[] = {static_cast<std::int64_t>(recorder_.dropped())};
  world_.sum(dropped);
  comm::on_first_rank(world_, [&] {
    file_->set_memory("gradients", static_cast<std::int64_t>(session.engine.gradient_bytes()));
    file_->set_memory("parameters", static_cast<std::int64_t>(session.engine.parameter_bytes()));
    file_->set_memory("optimizer", static_cast<std::int64_t>(session.optimizer.master_bytes() +
                                                             session.optimizer.moment_bytes()));
    file_->set_memory("activations", static_cast<std::int64_t>(session.model.activation_bytes()));
    std::int64_t scratch = 0;
    for (const device::ScratchPool::Usage& block : session.scratch.usage()) {
      const auto bytes = static_cast<std::int64_t>(block.high_water_bytes);
      scratch += bytes;
      if (bytes > 0)
        file_->set_memory("scratch." + block.name, bytes);
    }
    file_->set_memory("scratch", scratch);
    file_->set_memory("peak_resident", highest[0]);
    file_->set_timing_fact("dropped", static_cast<double>(dropped[0]), "samples");
    file_->close();
    file_.reset();
  });
}

void Journal::print_summary(Log& log) const {
  const auto whole = recorder_.summary(timing::Name::step);
  if (whole.count == 0)
    return;
  log.info("where the time of a step went (rank 0, median {}):", duration_text(whole.median_s));
  for (const timing::NameInfo& known : timing::names) {
    const auto part = recorder_.summary(known.name);
    if (part.count > 0 && std::string_view(known.help).starts_with("Within step"))
      log.info("  {:<16} {:>6.2f} %", known.dotted, 100 * part.total_s / whole.total_s);
  }
}

}  // namespace trireme::train
