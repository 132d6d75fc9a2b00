// SPDX-License-Identifier: Apache-2.0
#include "train/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/line_output.hpp"
#include "base/text.hpp"

namespace trireme::train {

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

void Progress::step(std::int64_t step,
                    const session::StepOutcome& outcome,
                    double tokens_left,
                    double noise_scale) {
  tokens_left_ = tokens_left;
  const double rate = static_cast<double>(outcome.tokens) / outcome.seconds;
  if (step > first_step_) {
    // The weight of old steps falls to 0.95 per step; the first ones count equally.
    const double weight = std::max(0.05, 1.0 / static_cast<double>(++measured_));
    seconds_per_token_ +=
        weight * (outcome.seconds / static_cast<double>(outcome.tokens) - seconds_per_token_);
  }
  if (has_line(step, first_step_, steps_)) {
    clear();
    log_.info(
        "step {:>6}/{}  loss {:.4f}{}  grad norm {:.3g}{}  lr {:.3g}  {} tokens/s  {:.4g} "
        "TFLOP/s{}",
        step, steps_, outcome.loss, bits_text(outcome.bits_per_byte), outcome.grad_norm,
        std::isnan(noise_scale) ? ""
                                : fmt::format("  noise scale {} tokens", count_text(noise_scale)),
        outcome.learning_rate, count_text(rate), rate * flops_per_token_ / 1e12,
        remaining_seconds() >= 0 && step < steps_
            ? "  " + duration_text(remaining_seconds()) + " left"
            : std::string());
  }
  if (bar_ && step < steps_)
    draw(step, outcome.loss, rate);
}

void Progress::draw(std::int64_t step, double loss, double rate) {
  const double now = device::steady_seconds();
  if (now - last_drawn_ < 0.1)
    return;
  last_drawn_ = now;
  constexpr int width = 30;
  const auto filled = static_cast<int>(width * step / std::max<std::int64_t>(steps_, 1));
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(width, '.');
  const std::string left =
      remaining_seconds() >= 0 ? duration_text(remaining_seconds()) + " left" : "";
  log_output().write(fmt::format("\r\033[K[{}] {}/{}  loss {:.4f}  {} tokens/s  {}", bar, step,
                                 steps_, loss, count_text(rate), left));
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_)
    log_output().write("\r\033[K");
  drawn_ = false;
}

double Progress::remaining_seconds() const {
  return measured_ == 0 ? -1 : seconds_per_token_ * tokens_left_;
}

const char* launched_rank() {
  // Open MPI; PMIx (Open MPI 5, srun --mpi=pmix); PMI (MPICH, Cray and Intel MPI); srun.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name); rank != nullptr)  // NOLINT(concurrency-mt-unsafe)
      return rank;
  return nullptr;
}

bool terminal_listens() {
  if (isatty(STDOUT_FILENO) == 0)
    return false;
  if (launched_rank() == nullptr)
    return true;
  std::array<char, 256> target{};
  const std::string link = fmt::format("/proc/{}/fd/1", getppid());
  const auto length = readlink(link.c_str(), target.data(), target.size() - 1);
  const std::string_view path(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty");
}

}  // namespace trireme::train
