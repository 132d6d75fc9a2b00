// SPDX-License-Identifier: Apache-2.0
#include "train/progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/line_output.hpp"
#include "base/text.hpp"

namespace trireme::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string bits_text(double bits_per_byte) {
  return std::isnan(bits_per_byte) ? "" : fmt::format(" ({:.4f} bits per byte)", bits_per_byte);
}

bool has_line(std::int64_t step, std::int64_t first_step, std::int64_t steps) {
  const std::int64_t nth = step - first_step + 1;
  return step == steps || nth <= 10 || (step <= 100 && step % 10 == 0) || step % 100 == 0;
}

Progress::Progress(
    Log& log, bool bar, std::int64_t first_step, std::int64_t steps, double flops_per_token)
    : log_(log),
      bar_(bar),
      first_step_(first_step),
      steps_(steps),
      flops_per_token_(flops_per_token) {}

Progress::~Progress() {
  clear();
}

void Progress::step(const StepReport& report) {
  tokens_left_ = report.tokens_left;
  if (report.step > first_step_) {
    // The weight of old steps falls to 0.95 per step; the first ones count equally.
    const double weight = std::max(0.05, 1.0 / static_cast<double>(++measured_));
    seconds_per_token_ += weight * (report.seconds / report.tokens - seconds_per_token_);
  }
  if (has_line(report.step, first_step_, steps_)) {
    clear();
    const double rate = report.tokens / report.seconds;
    log_.info(
        "step {:>6}/{}  loss {:.4f}{}  grad norm {:.3g}{}  lr {:.3g}  {} tokens/s  {:.4g} "
        "TFLOP/s{}",
        report.step, steps_, report.loss, bits_text(report.bits_per_byte), report.grad_norm,
        std::isnan(report.noise_scale)
            ? ""
            : fmt::format("  noise scale {} tokens", count_text(report.noise_scale)),
        report.learning_rate, count_text(rate), rate * flops_per_token_ / 1e12,
        remaining_seconds() >= 0 && report.step < steps_
            ? "  " + duration_text(remaining_seconds()) + " left"
            : std::string());
  }
  if (bar_ && report.step < steps_)
    draw(report);
}

void Progress::draw(const StepReport& report) {
  if (now() - last_drawn_ < 0.1)
    return;
  last_drawn_ = now();
  constexpr int width = 30;
  const auto filled = static_cast<int>(width * report.step / std::max<std::int64_t>(steps_, 1));
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(width, '.');
  const std::string left =
      remaining_seconds() >= 0 ? duration_text(remaining_seconds()) + " left" : "";
  standard_output().write(fmt::format("\r\033[K[{}] {}/{}  loss {:.4f}  {} tokens/s  {}", bar,
                                      report.step, steps_, report.loss,
                                      count_text(report.tokens / report.seconds), left));
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_)
    standard_output().write("\r\033[K");
  drawn_ = false;
}

double Progress::remaining_seconds() const {
  return measured_ == 0 ? -1 : seconds_per_token_ * tokens_left_;
}

bool started_by_launcher() {
  // Open MPI; PMIx (Open MPI 5, srun --mpi=pmix); PMI (MPICH, Cray and Intel MPI); srun.
  static constexpr std::array variables{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
  return std::ranges::any_of(variables, [](const char* name) {
    return std::getenv(name) != nullptr;  // NOLINT(concurrency-mt-unsafe)
  });
}

bool terminal_listens() {
  if (isatty(STDOUT_FILENO) == 0)
    return false;
  if (!started_by_launcher())
    return true;
  std::array<char, 256> target{};
  const std::string link = fmt::format("/proc/{}/fd/1", getppid());
  const auto length = readlink(link.c_str(), target.data(), target.size() - 1);
  const std::string_view path(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty");
}

}  // namespace trireme::train
