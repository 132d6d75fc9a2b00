// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "batches/batches.hpp"
#include "batches/sample_order.hpp"
#include "tokens/sources.hpp"
#include "tokens/token_files.hpp"

#include "plan/plan_text.hpp"

namespace trireme::plan {
namespace {

struct Part {
  std::string key;
  const batches::FilesConfig* files;
  double weight;
};

/// Text in bytes is as many tokens as bytes; other text is counted when it is encoded.
std::string amount_text(const Part& part, const batches::DataConfig& data, double wanted) {
  double tokens = 0, text_bytes = 0;
  bool compressed = false;
  try {
    if (!part.files->tokens.empty())
      for (const tokens::ExaminedFile& one : tokens::examine_token_files(
               tokens::find_shards(part.files->tokens, part.key + ".tokens"), part.files->format))
        tokens += static_cast<double>(one.file.tokens);
    else
      for (const tokens::TextFile& file :
           tokens::find_text(part.files->text, part.key + ".text").files) {
        text_bytes += static_cast<double>(file.size);
        compressed = compressed || file.compressed;
      }
  } catch (const UserError& problem) {
    return "data that cannot be read here: " + problem.findings().front().text;
  } catch (const StorageError& problem) {
    return fmt::format("data that cannot be read here: {}", problem.what());
  }
  if (data.in_bytes() && !compressed && part.files->field.empty())
    tokens += text_bytes;
  if (data.train.mixture.empty() && !data.validation.given())
    tokens *= 1 - data.validation_fraction;
  if (tokens > 0)
    return fmt::format("{} training tokens: {:.3g} epochs", count_text(tokens), wanted / tokens);
  return fmt::format("{}{} of text, whose tokens are counted when it is encoded",
                     bytes_text(text_bytes), compressed ? " (compressed)" : "");
}

}  // namespace

std::string data_text(const deck::JobConfig& config, std::int64_t context) {
  const batches::SourceConfig& train = config.data.train;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < train.mixture.size(); ++i)
    parts.push_back(
        {fmt::format("data.train.mixture[{}]", i), &train.mixture[i], train.mixture[i].weight});
  if (parts.empty())
    parts.push_back({"data.train", &train, 1});
  std::vector<double> weights;
  for (const Part& part : parts) weights.push_back(part.weight);
  const auto quotas = batches::quotas_of(weights);
  const double all = static_cast<double>(config.batch.sizes().until(config.run.steps) * context);
  std::string text = fmt::format("tokens of the run: {}\n", count_text(all));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share =
        static_cast<double>(quotas[i]) / static_cast<double>(batches::MixtureOrder::block);
    text += fmt::format("  {}: {:.4g} % of them, from {}\n", parts[i].key, 100 * share,
                        train.synthetic > 0 ? count_text(train.synthetic) + " generated tokens"
                                            : amount_text(parts[i], config.data, share * all));
  }
  if (const batches::Skips skips(config.data.skip); !config.data.skip.empty()) {
    const std::int64_t skipped =
        skips.count(skips.after(0, config.batch.sizes().until(config.run.steps)));
    text += fmt::format("  data.skip: {} samples of {} tokens are left out, {} tokens together\n",
                        skipped, context,
                        count_text(static_cast<double>(skipped) * static_cast<double>(context)));
  }
  return text;
}

}  // namespace trireme::plan
