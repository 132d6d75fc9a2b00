// SPDX-License-Identifier: Apache-2.0
// Parameter tables for the layout tests: GPT-2 shapes with the table's vocabulary padded to 50304
// and a tied head, and tables of random sizes.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "layout/plan.hpp"

namespace trireme::layout::testing {

struct Gpt2 {
  const char* name;
  std::int64_t layers, channels, context;
};
inline constexpr Gpt2 gpt2_124m{"124M", 12, 768, 1024};
inline constexpr Gpt2 gpt2_350m{"350M", 24, 1024, 1024};
inline constexpr Gpt2 gpt2_774m{"774M", 36, 1280, 1024};
inline constexpr Gpt2 gpt2_1558m{"1.5B", 48, 1600, 1024};
inline constexpr Gpt2 gpt2_6700m{"6.7B", 32, 4096, 2048};

/// In registration order, no own bucket.
inline std::vector<Parameter> gpt2_table(const Gpt2& model) {
  const std::int64_t d = model.channels;
  std::vector<Parameter> table;
  const auto add = [&table](std::string name, std::vector<std::int64_t> shape) {
    const bool is_matrix = shape.size() > 1;
    table.push_back({std::move(name), std::move(shape), false, is_matrix});
  };
  add("wte", {50304, d});
  add("wpe", {model.context, d});
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const std::string h = "h." + std::to_string(l) + ".";
    add(h + "ln1.w", {d});
    add(h + "ln1.b", {d});
    add(h + "qkv.w", {3 * d, d});
    add(h + "qkv.b", {3 * d});
    add(h + "proj.w", {d, d});
    add(h + "proj.b", {d});
    add(h + "ln2.w", {d});
    add(h + "ln2.b", {d});
    add(h + "fc.w", {4 * d, d});
    add(h + "fc.b", {4 * d});
    add(h + "fc2.w", {d, 4 * d});
    add(h + "fc2.b", {d});
  }
  add("lnf.w", {d});
  add("lnf.b", {d});
  return table;
}

/// One-dimensional parameters of the given sizes, named p0, p1, ….
inline std::vector<Parameter> table_of(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> table;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    table.push_back({"p" + std::to_string(i), {sizes[i]}, false, i % 2 == 0});
  return table;
}

/// 1 to 24 parameters of 1 to 5000 elements; some tables have parameters with their own bucket.
inline std::vector<Parameter> random_table(std::mt19937& random) {
  std::uniform_int_distribution<int> count(1, 24);
  std::uniform_int_distribution<int> exponent(0, 12);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count(random)));
  for (std::int64_t& size : sizes)
    size = 1 + static_cast<std::int64_t>(random() % (1U << exponent(random)));
  auto table = table_of(sizes);
  if (random() % 2 == 0)
    for (Parameter& parameter : table) parameter.own_bucket = random() % 5 == 0;
  return table;
}

}  // namespace trireme::layout::testing
