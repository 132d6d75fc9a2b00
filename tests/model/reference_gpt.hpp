// SPDX-License-Identifier: Apache-2.0
// A model's forward in double precision, written for clarity: one position at a time, without
// caches, sharing with src/compute/model only parameter names and the dropout rule. The model's
// gradients are checked against its finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "model/gpt.hpp"
#include "ops/dropout.hpp"

namespace trireme::model::testing {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class ReferenceGpt {
 public:
  /// Values in registration order; `dropout_seed` is the model's seed.
  ReferenceGpt(const GptShape& shape, std::uint64_t dropout_seed)
      : shape_(shape), key_(RandomKey::of(dropout_seed, Draw::dropout)) {
    const auto table = parameter_table(shape);
    for (std::size_t i = 0; i < table.size(); ++i) index_[table[i].name] = i;
  }

  std::vector<std::vector<double>> parameters;

  /// Logits [T, V] of one sample.
  [[nodiscard]] Rows logits(const std::int32_t* tokens, std::uint64_t sample, bool dropout) const {
    const auto T = static_cast<std::size_t>(shape_.context);
    const auto C = static_cast<std::size_t>(shape_.channels);
    Rows x(T, Row(C));
    for (std::size_t t = 0; t < T; ++t)
      for (std::size_t c = 0; c < C; ++c)
        x[t][c] = (p("wte.weight")[static_cast<std::size_t>(tokens[t]) * C + c] +
                   (has("wpe.weight") ? p("wpe.weight")[t * C + c] : 0.0)) *
                  factor(dropout, 0, sample, t * C + c);
    if (shape_.embedding_norm)
      x = norm(x, "ln_e");
    for (std::int64_t l = 0; l < shape_.layers; ++l) {
      const std::string h = "h." + std::to_string(l) + ".";
      const auto site = static_cast<std::uint32_t>(3 * l);
      const Rows qkv = turned(normalized(linear(norm(x, h + "ln_1"), h + "attn.qkv"), h));
      const Rows a = attention(qkv, tokens, site + 1, sample, dropout);
      add_branch(x, linear(a, h + "attn.proj"), site + 2, sample, dropout);
      Rows wide = linear(norm(x, h + "ln_2"), h + "mlp.fc");
      for (Row& row : wide) row = activated(row);
      add_branch(x, linear(wide, h + "mlp.proj"), site + 3, sample, dropout);
    }
    Rows all = linear(norm(x, "ln_f"), shape_.tied_head ? "wte" : "head");
    for (Row& row : all)
      for (double& logit : row)
        if (shape_.logit_softcap > 0)
          logit = shape_.logit_softcap * std::tanh(logit / shape_.logit_softcap);
    return all;
  }

  /// Losses per token, [B·T], without the z-loss; row b is global sample first_sample + b.
  [[nodiscard]] std::vector<double> losses(const std::vector<std::int32_t>& tokens,
                                           const std::vector<std::int32_t>& targets,
                                           std::uint64_t first_sample,
                                           bool dropout) const {
    return losses_with(0, tokens, targets, first_sample, dropout);
  }

  /// The training loss: with the z-loss.
  [[nodiscard]] double mean_loss(const std::vector<std::int32_t>& tokens,
                                 const std::vector<std::int32_t>& targets,
                                 std::uint64_t first_sample,
                                 bool dropout) const {
    double sum = 0;
    for (const double loss : losses_with(shape_.z_loss, tokens, targets, first_sample, dropout))
      sum += loss;
    return sum / static_cast<double>(tokens.size());
  }

 private:
  [[nodiscard]] std::vector<double> losses_with(double z_loss,
                                                const std::vector<std::int32_t>& tokens,
                                                const std::vector<std::int32_t>& targets,
                                                std::uint64_t first_sample,
                                                bool dropout) const {
    const auto T = static_cast<std::size_t>(shape_.context);
    std::vector<double> all;
    for (std::size_t b = 0; b * T < tokens.size(); ++b) {
      const Rows rows = logits(tokens.data() + b * T, first_sample + b, dropout);
      for (std::size_t t = 0; t < T; ++t) {
        double sum = 0;
        for (const double logit : rows[t]) sum += std::exp(logit);
        const double log_sum = std::log(sum);
        all.push_back(log_sum - rows[t][static_cast<std::size_t>(targets[b * T + t])] +
                      z_loss * log_sum * log_sum);
      }
    }
    return all;
  }

  [[nodiscard]] const std::vector<double>& p(const std::string& name) const {
    return parameters[index_.at(name)];
  }
  [[nodiscard]] bool has(const std::string& name) const { return index_.contains(name); }

  [[nodiscard]] double factor(bool dropout,
                              std::uint32_t site,
                              std::uint64_t sample,
                              std::uint64_t element) const {
    if (!dropout || shape_.dropout == 0)
      return 1;
    const ops::Dropout d{static_cast<float>(shape_.dropout), key_, &sample, site};
    return static_cast<double>(ops::dropout_factor(d, 0, element));
  }

  [[nodiscard]] Rows norm(const Rows& x, const std::string& name) const {
    Rows y = x;
    for (Row& row : y) {
      const auto n = static_cast<double>(row.size());
      double mean = 0, variance = 0;
      for (const double value : row) mean += shape_.norm == Norm::rms_norm ? 0 : value / n;
      for (const double value : row) variance += (value - mean) * (value - mean) / n;
      for (std::size_t c = 0; c < row.size(); ++c)
        row[c] = (row[c] - mean) / std::sqrt(variance + shape_.norm_epsilon) *
                     (has(name + ".weight") ? p(name + ".weight")[c] : 1.0) +
                 (has(name + ".bias") ? p(name + ".bias")[c] : 0.0);
    }
    return y;
  }

  [[nodiscard]] Rows linear(const Rows& x, const std::string& name) const {
    const std::vector<double>& w = p(name + ".weight");
    const std::size_t in = x.front().size(), out = w.size() / in;
    Rows y(x.size(), Row(out));
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t o = 0; o < out; ++o) {
        double sum = has(name + ".bias") ? p(name + ".bias")[o] : 0.0;
        for (std::size_t i = 0; i < in; ++i) sum += x[t][i] * w[o * in + i];
        y[t][o] = sum;
      }
    return y;
  }

  [[nodiscard]] Rows attention(const Rows& qkv,
                               const std::int32_t* tokens,
                               std::uint32_t site,
                               std::uint64_t sample,
                               bool dropout) const {
    const auto D = static_cast<std::size_t>(shape_.head_channels());
    const auto C = static_cast<std::size_t>(shape_.heads) * D;
    const auto G = static_cast<std::size_t>(shape_.key_value_heads());
    const std::size_t T = qkv.size(), group = C / D / G;
    const std::size_t window =
        shape_.long_layers[site / 3] ? 0 : static_cast<std::size_t>(shape_.attention_window);
    Rows y(T, Row(C));
    for (std::size_t h = 0; h * D < C; ++h) {
      const std::size_t key = C + h / group * D, value = key + G * D;
      for (std::size_t t = 0; t < T; ++t) {
        Row weight(t + 1);
        double sum = 0;
        std::size_t first = window > 0 && t >= window ? t - window + 1 : 0;
        for (std::size_t u = t; shape_.document_token >= 0 && u > first; --u)
          first = tokens[u] == shape_.document_token ? u : first;
        for (std::size_t s = first; s <= t; ++s) {
          double dot = 0;
          for (std::size_t d = 0; d < D; ++d) dot += qkv[t][h * D + d] * qkv[s][key + d];
          weight[s] = std::exp(dot / std::sqrt(static_cast<double>(D)));
          sum += weight[s];
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::size_t d = 0; d < D; ++d)
            y[t][h * D + d] += weight[s] / sum *
                               factor(dropout, site, sample, (h * T + t) * T + s) *
                               qkv[s][value + d];
      }
    }
    return y;
  }

  /// Queries and keys normalized head by head, if the model does that.
  [[nodiscard]] Rows normalized(Rows qkv, const std::string& scope) const {
    const auto D = static_cast<std::size_t>(shape_.head_channels());
    const auto heads = static_cast<std::size_t>(shape_.heads + shape_.key_value_heads());
    const auto queries = static_cast<std::size_t>(shape_.heads);
    for (Row& row : qkv)
      for (std::size_t h = 0; shape_.qk_norm != QkNorm::none && h < heads; ++h) {
        const std::string gain = scope + (h < queries ? "attn.q_norm" : "attn.k_norm") + ".weight";
        double squares = 0;
        for (std::size_t d = 0; d < D; ++d) squares += row[h * D + d] * row[h * D + d];
        const double root = std::sqrt(squares / static_cast<double>(D) + shape_.norm_epsilon);
        for (std::size_t d = 0; d < D; ++d) row[h * D + d] *= (has(gain) ? p(gain)[d] : 1.0) / root;
      }
    return qkv;
  }

  /// Queries and keys, rotated if positions are rotary.
  [[nodiscard]] Rows turned(Rows qkv) const {
    const auto D = static_cast<std::size_t>(shape_.head_channels());
    const auto heads = static_cast<std::size_t>(shape_.heads + shape_.key_value_heads());
    for (std::size_t t = 0; shape_.positions == Positions::rotary && t < qkv.size(); ++t)
      for (std::size_t j = 0; j < D / 2; ++j) {
        const double angle =
            static_cast<double>(t) *
            std::pow(shape_.rotary_theta, -2.0 * static_cast<double>(j) / static_cast<double>(D));
        const double cosine = std::cos(angle), sine = std::sin(angle);
        for (std::size_t h = 0; h < heads; ++h) {
          double& a = qkv[t][h * D + j];
          double& b = qkv[t][h * D + j + D / 2];
          const double before = a;
          a = before * cosine - b * sine;
          b = b * cosine + before * sine;
        }
      }
    return qkv;
  }

  [[nodiscard]] Row activated(const Row& row) const {
    if (shape_.activation == Activation::swiglu) {
      Row y(row.size() / 2);
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = row[i] / (1 + std::exp(-row[i])) * row[i + y.size()];
      return y;
    }
    Row y = row;
    for (double& value : y)
      value = shape_.activation == Activation::gelu ? gelu(value)
                                                    : std::max(0.0, value) * std::max(0.0, value);
    return y;
  }

  void add_branch(
      Rows& x, const Rows& branch, std::uint32_t site, std::uint64_t sample, bool dropout) const {
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t c = 0; c < x[t].size(); ++c)
        x[t][c] += branch[t][c] * factor(dropout, site, sample, t * x[t].size() + c);
  }

  static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  GptShape shape_;
  RandomKey key_;
  std::map<std::string, std::size_t> index_;
};

}  // namespace trireme::model::testing
