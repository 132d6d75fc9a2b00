// SPDX-License-Identifier: Apache-2.0
#include "train/opening_lines.hpp"

#include <string>

#include <fmt/format.h>

#include "base/text.hpp"

#include "reduce/layout_options.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"

namespace trireme::train {

void log_opening_lines(const session::Job& job,
                       session::Session& session,
                       std::int64_t first_step,
                       Log& log) {
  const auto count = [](std::int64_t number) { return count_text(static_cast<double>(number)); };
  const int copies = session.plan.replicas();
  log.info(
      "{}: {} parameters in {} buckets ({}), {} ranks{} over {}, {}, {} micro-steps of {} x {} "
      "tokens",
      job.run.name, count(session.plan.parameter_elements()), session.plan.buckets().size(),
      reduce::bucket_text(job.parallel, session.plan), session.world.size(),
      copies > 1 ? fmt::format(" with {} copies", copies) : "", session.communicator->name(),
      name(session.dtype), session.batches(first_step).micro_steps(), job.batch.micro_sequences,
      job.shape.context);
  if (const Bytes* limit = job.shape.recompute.limit()) {
    const model::RecomputeChoice choice = session::decide_recompute(
        job, session.shape, session.plan, {session.dtype, session.device->kind()});
    log.info("model.recompute: {}: a rank takes {} of {}", model::recompute_text(choice.recompute),
             bytes_text(static_cast<double>(choice.bytes)),
             bytes_text(static_cast<double>(limit->count)));
  }
  if (const std::string& note = session.communicator->note(); !note.empty())
    session.choices.push_back(note);
  if (session.world.rank() == 0)
    for (const std::string& line : session.choices) log.warning("{}", line);
  if (!session.without_graphs.empty())
    log.info("gpu.graphs: off: {}", session.without_graphs);
  for (const std::string& line : session::gpu_table(session.world, *session.device))
    log.info("{}", line);
  log.info("data: {} training tokens, {} validation tokens", count(session.data.train.num_tokens()),
           session.data.validation ? count(session.data.validation->num_tokens()) : "no");
}

}  // namespace trireme::train
