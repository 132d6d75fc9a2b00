// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/deck_reports.hpp"
#include "deck/bad_deck.hpp"
#include "deck/yaml.hpp"
#include "plan/plan_text.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::cli {
namespace {

using deck::Circumstances;
using deck::Deck;
using deck::Node;

using testing::HasSubstr;

plan::DeckPlan planned(int ranks, const std::vector<std::string>& overrides = {}, int hosts = 1) {
  std::vector<std::string> all = {"model={layers: 2, heads: 2, channels: 64, context: 16}",
                                  "batch.sequences=" + std::to_string(8 * ranks)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return plan::plan_with_choices(
      deck::parse(deck::completed(""), "deck.yaml", all,
                  Circumstances{.ranks = ranks, .cuda = true, .hosts = hosts}),
      ranks, hosts);
}

const Node& member(const Node& map, const std::string& key) {
  const auto found = std::ranges::find(map.children, key, &Node::key);
  if (found == map.children.end())
    throw std::runtime_error("no member " + key);
  return *found;
}
std::int64_t number(const Node& map, const std::string& key) {
  return std::stoll(member(map, key).word);
}

/// JSON is YAML.
Node read_json(const std::string& text) {
  std::vector<Diagnostic> findings;
  Node root = deck::parse_yaml(text, {"plan.json"}, findings);
  EXPECT_TRUE(findings.empty());
  return root;
}

TEST(PlanCommand, CountsWhatTheModelHas) {
  // The parameters of a 2-layer GPT with C = 64, T = 16, V = 256: a block has 12 C^2 + 13 C.
  const std::int64_t expected = 256 * 64 + 16 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
  const Node json = read_json(plan::plan_json(planned(3)));
  EXPECT_EQ(number(json, "parameter_elements"), expected);
  EXPECT_EQ(number(json, "ranks"), 3);
  EXPECT_EQ(number(json, "granule"), 384);
  EXPECT_EQ(number(json, "owned_elements") * 3, number(json, "flat_elements"));
}

TEST(PlanCommand, AddsUp) {
  for (const int ranks : {1, 2, 3, 5, 8, 512}) {
    SCOPED_TRACE(ranks);
    const plan::DeckPlan plan = planned(ranks, {"parallel.bucket_elements=30000"});
    const Node json = read_json(plan::plan_json(plan));
    std::int64_t elements = 0, padding = 0, shards = 0;
    std::size_t names = 0;
    for (const Node& bucket : member(json, "buckets").children) {
      EXPECT_EQ(number(bucket, "begin"), elements);
      elements += number(bucket, "elements");
      padding += number(bucket, "padding");
      shards += number(bucket, "shard_elements");
      names += member(bucket, "parameters").children.size();
    }
    EXPECT_EQ(elements, number(json, "flat_elements"));
    EXPECT_EQ(elements - padding, number(json, "parameter_elements"));
    EXPECT_EQ(shards, number(json, "owned_elements"));
    EXPECT_EQ(names, plan.plan.parameters().size());
    const Node fp32 = member(member(json, "per_rank"), "fp32");
    EXPECT_EQ(number(fp32, "gradient_bytes"), 4 * elements);
    EXPECT_EQ(number(fp32, "moment1_bytes"), 4 * elements / ranks);
    EXPECT_EQ(number(fp32, "moment2_bytes"), 4 * elements / ranks);
    EXPECT_EQ(number(fp32, "snapshot_bytes"), 12 * elements / ranks);
    EXPECT_EQ(number(fp32, "held_bytes"), 8 * elements + 20 * elements / ranks);
    EXPECT_EQ(number(fp32, "gradient_wire_bytes"), 4 * (elements - elements / ranks));
  }
}

TEST(PlanCommand, StatesTheCopiesInMemoryWhereRanksCanContinue) {
  const std::vector<std::string> never{"parallel.on_lost_rank=shrink"};
  const std::vector<std::string> stops{"checkpoint.memory_every_steps=5"};
  const std::vector<std::string> both{never[0], stops[0]};
  for (const auto& [overrides, ranks] :
       {std::pair{never, 2}, std::pair{stops, 2}, std::pair{both, 1}}) {
    const plan::DeckPlan plan = planned(ranks, overrides);
    EXPECT_EQ(plan.budgets[0].copies_bytes, 0);
    EXPECT_THAT(plan::plan_text(plan), testing::Not(testing::HasSubstr("in memory")));
  }
  const plan::DeckPlan plan = planned(2, both);
  const std::int64_t one = layout::snapshot_bytes(plan.plan, plan.slots);
  EXPECT_EQ(plan.budgets[0].copies_bytes, comm::why_losses_end_all_ranks().empty() ? 4 * one : 0);
  const Node json = read_json(plan::plan_json(plan));
  if (comm::why_losses_end_all_ranks().empty()) {
    EXPECT_EQ(number(member(member(json, "per_rank"), "fp32"), "copy_wire_bytes"), one);
  }
}

TEST(PlanCommand, SaysHowOftenTheRunReadsEachSource) {
  const test::ScratchDirectory scratch;
  const std::string bytes = scratch.path() + "/bytes", raw = scratch.path() + "/raw";
  std::ofstream(bytes) << std::string(1000, 'a');
  std::ofstream(raw) << std::string(2 * 3000, 'a');
  const auto text_of = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {
        "model={layers: 2, heads: 2, channels: 64, context: 16, vocabulary: 256}",
        "batch.sequences=10", "run.steps=100"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const Deck parsed =
        deck::parse(deck::completed(""), "deck.yaml", all, Circumstances{.ranks = 1});
    return plan::data_text(parsed.config, parsed.shape().context);
  };
  EXPECT_EQ(text_of({fmt::format(
                "data.train={{synthetic: 0, mixture: [{{weight: 3, text: ['{}']}}, {{weight: 1, "
                "tokens: ['{}'], format: uint16}}]}}",
                bytes, raw)}),
            "tokens of the run: 16.0 k\n"
            "  data.train.mixture[0]: 75 % of them, from 1.00 k training tokens: 12 epochs\n"
            "  data.train.mixture[1]: 25 % of them, from 3.00 k training tokens: 1.33 epochs\n");
  EXPECT_EQ(text_of({fmt::format("data.train={{synthetic: 0, text: ['{}']}}", bytes),
                     "data.validation_fraction=0.2"}),
            "tokens of the run: 16.0 k\n  data.train: 100 % of them, from 800 training tokens: 20 "
            "epochs\n");
  EXPECT_THAT(text_of({"data.train={synthetic: 0, text: [/nowhere/at/all]}"}),
              HasSubstr("data.train: 100 % of them, from data that cannot be read here: "));
}

/// Llama 8B and 70B with the buckets that `auto` chooses.
TEST(PlanCommand, GpusHoldNoMoreInShardsOnMoreOfThem) {
  const std::string common = "family: llama, vocabulary: 128256, context: 8192, key_value_heads: 8";
  for (const char* size : {"layers: 32, channels: 4096, heads: 32, mlp_channels: 14336",
                           "layers: 80, channels: 8192, heads: 64, mlp_channels: 28672"})
    for (const char* shard : {"gradients", "parameters"})
      for (const char* precision : {"fp32", "bf16"}) {
        std::int64_t before = std::numeric_limits<std::int64_t>::max();
        for (const int ranks : {8, 16, 64, 90, 128, 265, 512, 4096}) {
          SCOPED_TRACE(fmt::format("{}, {}, {}, {} GPUs", size, shard, precision, ranks));
          const std::vector<std::string> words{fmt::format("model={{{}, {}}}", size, common),
                                               "run.device=cuda",
                                               fmt::format("run.precision={}", precision),
                                               fmt::format("parallel.shard={}", shard),
                                               fmt::format("batch.sequences={}", ranks),
                                               "batch.micro_sequences=1",
                                               "checkpoint.every_steps=0"};
          const Deck deck = deck::parse(deck::completed(""), "deck.yaml", words,
                                        Circumstances{.ranks = ranks, .cuda = true, .hosts = 1});
          const std::int64_t held = plan::plan_of(deck, ranks).budgets.front().held_bytes();
          EXPECT_LE(held, before);
          before = held;
        }
      }
}

/// 32 MiB for each NCCL communicator that adds more than two terms.
TEST(PlanCommand, CountsTheTermsOfGradientsInBf16) {
  const auto workspace = [](int ranks, std::vector<std::string> words) {
    words.emplace_back("run.device=cuda");
    words.emplace_back("run.precision=fp32");
    words.emplace_back("parallel.reduction=sum");
    return planned(ranks, words).workspaces.front();
  };
  const std::string bf16 = "parallel.gradient_dtype=bf16";
  constexpr std::int64_t terms = 32 << 20;
  const std::int64_t fp32 = workspace(8, {});
  EXPECT_EQ(workspace(8, {bf16}), fp32 + terms);
  EXPECT_EQ(workspace(2, {bf16}), fp32);
  EXPECT_EQ(workspace(8, {bf16, "parallel.nccl_bf16_sum=library"}), fp32);
  EXPECT_EQ(workspace(8, {bf16, "parallel.replicate=2"}), fp32 + terms);
  EXPECT_EQ(workspace(16, {bf16, "parallel.replicate=4"}), fp32 + 2 * terms);
  EXPECT_EQ(workspace(8192, {bf16}), fp32 + 8192 * 8192) << "8 KiB for each rank";
}

TEST(PlanCommand, CountsWhatMuonTakes) {
  const auto plan = planned(2, {"optimizer.kind=muon"});
  const auto work = optim::matrix_work(
      plan.plan,
      [] {
        optim::OptimizerConfig config;
        config.kind = optim::Kind::muon;
        return config;
      }(),
      true);
  const Node json = read_json(plan::plan_json(plan));
  const Node fp32 = member(member(json, "per_rank"), "fp32");
  EXPECT_EQ(number(fp32, "matrix_bytes"), work->bytes());
  EXPECT_EQ(number(fp32, "matrix_wire_bytes"), work->sent_bytes);
  EXPECT_GT(work->sent_bytes, 0);
  EXPECT_EQ(number(fp32, "held_bytes"),
            number(fp32, "gradient_bytes") + number(fp32, "parameter_bytes") +
                number(fp32, "moment1_bytes") + number(fp32, "moment2_bytes") + work->bytes() +
                number(fp32, "snapshot_bytes"));
  EXPECT_EQ(number(member(json, "matrices"), "number"), work->matrices);
  EXPECT_THAT(plan::plan_text(plan), testing::HasSubstr("muon: "));
  EXPECT_FALSE(planned(2).matrices.has_value());
}

TEST(PlanCommand, CountsThePartialSumsOfATree) {
  const std::vector<std::string> tree = {"parallel.reduction=tree", "parallel.logical_shards=8"};
  for (const auto& [ranks, arenas] : {std::pair{1, 4}, {2, 3}, {4, 2}, {8, 1}})
    EXPECT_EQ(planned(ranks, tree).budgets[0].gradient_bytes,
              arenas * planned(ranks).budgets[0].gradient_bytes)
        << ranks << " ranks: log2(8 / ranks) sums wait";
}

TEST(PlanCommand, CountsActivationsAndScratch) {
  // 4 sequences of 16 in C = 64, by hand, in elements of 4 bytes per row: a block keeps x, norms,
  // attention, x_middle (5 C), qkv (3 C), fc and gelu (8 C), four statistics, and 2 heads of lse;
  // the end 2 C and two statistics. 16 tokens of next_logits. Every item is a multiple of 128 B.
  const std::int64_t rows = 4 * 16, C = 64;
  const auto bytes = [&](const std::string& recompute) {
    const auto plan = planned(1, {"batch.micro_sequences=4", "model.recompute=" + recompute});
    const Node json = read_json(plan::plan_json(plan));
    const Node fp32 = member(member(json, "per_rank"), "fp32");
    EXPECT_EQ(number(fp32, "whole_bytes"), number(fp32, "held_bytes") +
                                               number(fp32, "activation_bytes") +
                                               number(fp32, "scratch_bytes"));
    EXPECT_EQ(number(fp32, "scratch_bytes"), 4 * rows * (256 + C + 4 * C + C));
    return number(fp32, "activation_bytes");
  };
  const std::int64_t block = 4 * rows * (16 * C + 4 + 2), end = 4 * rows * (2 * C + 2) + 128;
  EXPECT_EQ(bytes("none"), 2 * block + end);
  EXPECT_EQ(bytes("gelu"), 2 * (block - 4 * rows * 4 * C) + end);
  EXPECT_EQ(bytes("block"), block + 4 * rows * C + end);
}

plan::DeckPlan with_layers(int layers, int ranks, const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {
      fmt::format("model={{layers: {}, heads: 2, channels: 64, context: 16}}", layers),
      fmt::format("batch={{sequences: {}, micro_sequences: 4}}", 8 * ranks)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return plan::plan_of(deck::parse(deck::completed(""), "deck.yaml", all,
                                   Circumstances{.ranks = ranks, .cuda = true}),
                       ranks);
}

TEST(PlanCommand, CountsActivationsOfEachBlock) {
  const auto bytes = [](const std::string& recompute) {
    return static_cast<std::int64_t>(
        with_layers(4, 1, {"model.recompute=" + recompute}).activations[0].bytes());
  };
  const std::int64_t rows = 4 * 16, C = 64, gelu = 4 * rows * 4 * C;
  const std::int64_t inside = 4 * rows * (15 * C + 4 + 2), all = bytes("none");
  EXPECT_EQ(bytes("[none, block, none, none]"), all);
  EXPECT_EQ(bytes("[none, block, block, gelu]"), all - inside - gelu);
  EXPECT_EQ(bytes("[block, gelu, block, block]"), all - 2 * inside - gelu);
  EXPECT_EQ(bytes("[block, block, block, block]"), bytes("block"));
}

class PlannedBudget : public ::testing::Test {
 protected:
  static plan::DeckPlan with(const std::string& recompute, int ranks = 2) {
    return with_layers(6, ranks, {"run.device=cpu", "model.recompute=" + recompute});
  }
  static plan::DeckPlan with(std::int64_t bytes) {
    return with(fmt::format("{{memory: {}}}", bytes));
  }
};

TEST_F(PlannedBudget, HoldsAllThatARankHolds) {
  for (const std::size_t dtype : {0U, 1U}) {
    const std::int64_t most = plan::whole_bytes(with("none"), dtype);
    const std::int64_t least = plan::whole_bytes(with("block"), dtype);
    std::int64_t before = 0;
    for (int i = 0; i <= 24; ++i) {
      const std::int64_t limit = least + (most - least) * i / 24;
      const plan::DeckPlan plan = with(limit);
      EXPECT_TRUE(plan.recompute[dtype].fits);
      EXPECT_EQ(plan.recompute[dtype].bytes, plan::whole_bytes(plan, dtype));
      EXPECT_LE(plan::whole_bytes(plan, dtype), limit);
      EXPECT_GE(plan::whole_bytes(plan, dtype), before) << "more is used of more";
      before = plan::whole_bytes(plan, dtype);
    }
    EXPECT_EQ(before, most);
    EXPECT_FALSE(with(least - 1).recompute[dtype].fits);
  }
}

/// With sharding, a rank holds less optimizer state and has more room for activations.
TEST_F(PlannedBudget, RecomputesLessOnMoreRanks) {
  const std::string limit =
      fmt::format("{{memory: {}}}", plan::whole_bytes(with("block", 1), 0) + 200'000);
  const auto words = [&](int ranks) {
    return model::recompute_text(with(limit, ranks).recompute[0].recompute);
  };
  EXPECT_EQ(words(1), "block x 5, gelu");
  EXPECT_EQ(words(64), "none");
}

TEST_F(PlannedBudget, DoesNotCountTheSnapshotOfAGpu) {
  const plan::DeckPlan gpu = planned(2, {"run.device=cuda", "model.recompute={memory: 1 TiB}"});
  EXPECT_GT(gpu.budgets[1].snapshot_bytes, 0);
  EXPECT_EQ(gpu.recompute[1].bytes, plan::whole_bytes(gpu, 1) - gpu.budgets[1].snapshot_bytes);
}

TEST_F(PlannedBudget, IsPrintedOrNamesTheLeast) {
  const test::ScratchDirectory scratch;
  const std::string deck = scratch.path() + "/deck.yaml";
  std::ofstream(deck) << deck::completed(
      "model: {layers: 6, heads: 2, channels: 64, context: 16}\n");
  const auto text = [&](const std::string& limit) {
    return plan_command(
        {deck, {"run.precision=fp32", "run.device=cpu", "model.recompute=" + limit}}, {.ranks = 2},
        {scratch.path() + "/" + limit + ".json"});
  };
  EXPECT_THAT(text("{memory: 1 TiB}"), HasSubstr("\nrecompute in fp32: none: "));
  EXPECT_THAT(text("block"), testing::Not(HasSubstr("recompute in")));
  const auto json = [&](const std::string& limit) {
    std::stringstream bytes;
    bytes << std::ifstream(scratch.path() + "/" + limit + ".json").rdbuf();
    return read_json(bytes.str());
  };
  EXPECT_EQ(member(member(json("block"), "recompute"), "fp32").word, "block");
  text("[block, block, gelu, none, none, none]");
  const Node mixed = json("[block, block, gelu, none, none, none]");
  const Node words = member(member(mixed, "recompute"), "fp32");
  ASSERT_EQ(words.children.size(), 6U);
  EXPECT_EQ(words.children[2].word, "gelu");
  const std::int64_t least =
      number(member(member(json("block"), "per_rank"), "fp32"), "whole_bytes");
  EXPECT_THAT(text(fmt::format("{{memory: {}}}", least)), HasSubstr("recompute in fp32: block: "));
  try {
    text(fmt::format("{{memory: {}}}", least - 1));
    FAIL() << "it took too few bytes";
  } catch (const UserError& error) {
    ASSERT_EQ(error.findings().size(), 1U);
    EXPECT_EQ(error.findings()[0].place.file, "command line");
    EXPECT_EQ(error.findings()[0].subject, "model.recompute");
    EXPECT_THAT(error.findings()[0].text,
                HasSubstr(fmt::format("in fp32 a rank needs at least {} bytes", least)));
  }
}

TEST(PlanCommand, CountsWhatAGpuNeedsBeside) {
  const auto plan_for = [](const std::string& device, const std::string& more = "run.seed=1") {
    std::vector<std::string> all = {more, "model={layers: 2, heads: 2, channels: 64, context: 16}",
                                    "batch.sequences=16", "batch.micro_sequences=4",
                                    "run.device=" + device};
    return plan::plan_with_choices(
        deck::parse(deck::completed(""), "deck.yaml", all, Circumstances{.ranks = 2, .cuda = true}),
        2);
  };
  const plan::DeckPlan gpu = plan_for("cuda"), cpu = plan_for("cpu");
  // 32 MiB for products; a sum per row of 4 x 2 heads x 16 positions; for cuDNN its dP, and 16 MiB
  // for each of two plans.
  const std::int64_t products = std::int64_t{32} << 20U, sums = 4 * 4 * 2 * 16;
  EXPECT_EQ(gpu.workspaces[0], products + sums);
  EXPECT_EQ(gpu.workspaces[1],
            products + sums + 2 * 4 * 2 * 64 * 64 + 2 * (std::int64_t{16} << 20U));
  EXPECT_EQ(plan_for("cuda", "gpu.timed_products=true").workspaces[0], 4 * products + sums);
  EXPECT_EQ(plan_for("cuda", "gpu.product_workspace=96").workspaces[0], 3 * products + sums);
  EXPECT_EQ(cpu.workspaces, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(gpu.budgets[0].peer_bytes, 0);
  EXPECT_GT(cpu.budgets[0].peer_bytes, 0);
  EXPECT_THAT(plan::plan_text(gpu), HasSubstr("note: cuDNN's workspace is estimated"));
  EXPECT_THAT(plan::plan_text(cpu), testing::Not(HasSubstr("note:")));
  const Node json = read_json(plan::plan_json(gpu));
  const Node bf16 = member(member(json, "per_rank"), "bf16");
  EXPECT_EQ(number(bf16, "whole_bytes"),
            number(bf16, "held_bytes") + number(bf16, "activation_bytes") +
                number(bf16, "scratch_bytes") + gpu.workspaces[1] + gpu.graphs[1]);
  EXPECT_EQ(number(bf16, "graph_bytes"), gpu.graphs[1]);
  // 2 micro-steps, of 40 kernels, 40 for each of 2 layers, 4 for the only chunk of the head and 2 for
  // its loss.
  const std::int64_t per_kernel = 10240;
  EXPECT_EQ(gpu.graphs, std::vector(2, per_kernel * 2 * (40 + 2 * 40 + 4 + 2)));
  EXPECT_EQ(plan_for("cuda", "model.loss_rows=16").graphs[0],
            per_kernel * 2 * (40 + 2 * 40 + 4 + 4 * 2));
  EXPECT_EQ(cpu.graphs, std::vector<std::int64_t>(2, 0));
  for (const char* without : {"gpu.graphs=false", "memory.pool=false"})
    EXPECT_EQ(plan_for("cuda", without).graphs[1], 0) << without;
}

plan::DeckPlan traffic(const std::vector<std::string>& overrides, int ranks, int hosts) {
  std::vector<std::string> all = {"model={layers: 2, heads: 2, channels: 64, context: 16}",
                                  "run.precision=fp32", "run.device=cpu",
                                  "batch.sequences=" + std::to_string(8 * ranks)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto deck = deck::parse(deck::completed(""), "deck.yaml", all,
                                Circumstances{.ranks = ranks, .cuda = true});
  return plan::plan_with_choices(deck, ranks, hosts);
}

TEST(PlanCommand, CountsWhatAHostSendsToOthers) {
  const plan::DeckPlan fp32 = traffic({}, 8, 2);
  const std::int64_t shard = fp32.plan.owned_elements();
  EXPECT_EQ(fp32.transport, comm::Transport::hierarchical);
  EXPECT_EQ(fp32.host_traffic[0].gradient_bytes, 4 * shard * 4) << "half of all, in fp32";
  EXPECT_EQ(fp32.host_traffic[0].parameter_bytes, 4 * shard * 4);
  const plan::DeckPlan bf16 = traffic({"parallel.gradient_dtype=bf16"}, 8, 2);
  EXPECT_EQ(bf16.host_traffic[0].gradient_bytes, 4 * shard * 4) << "sums of a host are fp32";
  const std::string one = "parallel.bucket_elements=40000000";  // the same buckets
  EXPECT_EQ(traffic({one, "parallel.gradient_dtype=bf16"}, 2, 2).host_traffic[0].gradient_bytes,
            traffic({one}, 2, 2).host_traffic[0].gradient_bytes / 2);
  for (const int ranks : {2, 8}) {
    const plan::DeckPlan coded = traffic({"parallel.gradient_dtype=int8"}, ranks, 2);
    const std::int64_t part = coded.plan.owned_elements() / 64 * 65;
    EXPECT_EQ(coded.budgets[0].gradient_wire_bytes, (ranks - 1) * part);
    EXPECT_EQ(coded.host_traffic[0].gradient_bytes, ranks / 2 * (ranks / 2) * part);
  }
  EXPECT_EQ(traffic({"parallel.gradient_dtype=int8", "parallel.transport=mpi"}, 1, 1)
                .host_traffic[0]
                .gradient_bytes,
            0);
  const plan::DeckPlan whole =
      traffic({"parallel.gradient_dtype=fp8", "parallel.shard=none"}, 2, 2);
  EXPECT_EQ(whole.host_traffic[0].gradient_bytes, 2 * whole.plan.owned_elements() / 64 * 65);
  const plan::DeckPlan flat = traffic({"parallel.transport=mpi", "parallel.shard=none"}, 8, 2);
  EXPECT_EQ(flat.host_traffic[0].gradient_bytes, 2 * 7 * shard * 4) << "one edge of the ring";
  EXPECT_EQ(flat.host_traffic[0].parameter_bytes, 0);
  EXPECT_THAT(plan::plan_text(fp32),
              HasSubstr("sent to other hosts per step, 2 hosts, hierarchical"));
  EXPECT_THAT(plan::plan_text(traffic({}, 8, 1)), testing::Not(HasSubstr("other hosts")));
}

TEST(PlanCommand, CountsWhatMatricesSendBetweenHosts) {
  const auto plan = traffic({"optimizer.kind=muon"}, 8, 2);
  EXPECT_GT(plan.host_matrix_bytes, 0);
  EXPECT_LE(plan.host_matrix_bytes, 4 * plan.matrices->sent_bytes) << "of four ranks";
  EXPECT_THAT(plan::plan_text(plan), HasSubstr("  by a host, for matrices"));
  const Node json = read_json(plan::plan_json(plan));
  EXPECT_EQ(number(member(member(json, "per_rank"), "fp32"), "host_matrix_wire_bytes"),
            plan.host_matrix_bytes);
  EXPECT_THAT(plan::plan_text(traffic({"optimizer.kind=muon"}, 8, 1)),
              testing::Not(HasSubstr("by a host, for matrices")));
  EXPECT_THAT(plan::plan_text(traffic({}, 8, 2)),
              testing::Not(HasSubstr("by a host, for matrices")));
}

TEST(PlanCommand, ComparesWhatShardsHoldAndSend) {
  const auto plan = planned(8, {"parallel.bucket_elements=5000", "batch.micro_sequences=2"});
  ASSERT_EQ(plan.shardings.size(), 4U);
  const auto held = [&](std::size_t i) { return plan.shardings[i].budgets[0].held_bytes(); };
  const auto sent = [&](std::size_t i) { return plan.shardings[i].budgets[0].wire_bytes(); };
  EXPECT_EQ(held(1), plan.budgets[0].held_bytes()) << "that of the deck";
  EXPECT_GT(held(0), held(1));
  EXPECT_GT(held(1), held(2));
  // Four micro-steps: gradients are sent four times and parameters once, with equal bytes.
  EXPECT_EQ(sent(0), sent(1));
  EXPECT_EQ(2 * sent(2), 5 * sent(1));
  // Parameters are sent at most twice in each micro-step, and gradients four times.
  EXPECT_GT(sent(3), sent(2));
  EXPECT_LE(2 * sent(3), 12 * sent(1));

  const auto own = planned(
      8, {"parallel.bucket_elements=5000", "batch.micro_sequences=2", "parallel.shard=gradients"});
  EXPECT_EQ(own.budgets[0].held_bytes(), held(2));
  EXPECT_EQ(own.budgets[0].wire_bytes(), sent(2));
  EXPECT_THAT(plan::plan_text(own), HasSubstr("\ngradients, as in the deck "));
  const Node json = read_json(plan::plan_json(own));
  EXPECT_EQ(member(json, "shard").word, "gradients");
  EXPECT_EQ(number(member(member(member(json, "shard_choices"), "none"), "fp32"), "held_bytes"),
            held(0));

  const auto tree = planned(8, {"parallel={reduction: tree, logical_shards: 8}"});
  EXPECT_TRUE(tree.shardings[2].budgets.empty());
  EXPECT_TRUE(tree.shardings[3].budgets.empty());
  EXPECT_THAT(plan::plan_text(tree), HasSubstr("`trireme check DECK parallel.shard=gradients`"));
  EXPECT_FALSE(tree.shardings[0].budgets.empty());
}

TEST(PlanCommand, CountsCopiesOnHosts) {
  const std::vector<std::string> words{"parallel.replicate=node", "parallel.reduction=sum",
                                       "run.precision=fp32"};
  const auto plan = planned(8, words, 2), one = planned(8, words);
  EXPECT_EQ(one.plan.replicas(), 1);
  EXPECT_EQ(plan.plan.replicas(), 2);
  EXPECT_EQ(plan.transport, comm::Transport::shared_memory) << "inside of a copy";
  EXPECT_GT(plan.budgets[0].all_state_bytes(), one.budgets[0].all_state_bytes());
  // A host has every shard once, and sends it to the other one and what that had of it.
  EXPECT_EQ(plan.host_traffic[0].gradient_bytes, 4 * plan.plan.flat_elements());
  EXPECT_EQ(plan.host_traffic[0].parameter_bytes, 0);
  EXPECT_THAT(plan::plan_text(plan),
              HasSubstr("8 ranks with 2 replicas of 4 ranks, shard: optimizer"));
  const Node json = read_json(plan::plan_json(plan));
  EXPECT_EQ(number(json, "ranks"), 8);
  EXPECT_EQ(number(json, "replicas"), 2);
  EXPECT_THROW(planned(8, words, 8), UserError) << "a copy on each rank";
}

/// Each host sends the other's half of every shard, and the sums of its own half.
TEST(PlanCommand, CountsCopiesOnHostsWithDifferentNumbersOfRanks) {
  const std::vector<std::string> words{"parallel.replicate=node", "parallel.reduction=sum",
                                       "run.precision=fp32", "optimizer.outer.local_steps=2"};
  const auto plan = planned(7, words, 2);
  EXPECT_EQ(plan.plan.ranks(), 3) << "of the smaller copy, whose ranks hold more";
  EXPECT_EQ(plan.host_traffic[0].gradient_bytes, 4 * plan.plan.flat_elements());
  EXPECT_THAT(plan::plan_text(plan), HasSubstr("7 ranks with 2 replicas of 3 ranks or more"));
  EXPECT_THROW(planned(7, {words[0], words[1]}, 2), UserError) << "which cannot add gradients";
}

TEST(PlanCommand, FollowsTheDeck) {
  EXPECT_EQ(planned(2).dtypes.size(), 2U) << "auto: both";
  EXPECT_EQ(planned(2, {"run.precision=bf16"}).dtypes, std::vector{DType::bf16});
  EXPECT_EQ(planned(2, {"parallel.padding=megatron_high_bandwidth"}).plan.granule(), 65536);
  EXPECT_EQ(planned(2, {"parallel.shard=none"}).budgets[0].all_state_bytes(),
            2 * planned(2).budgets[0].all_state_bytes());
  const auto snapshot = [](const std::vector<std::string>& overrides) {
    return planned(2, overrides).budgets[0].snapshot_bytes;
  };
  EXPECT_EQ(snapshot({"checkpoint.asynchronous=false"}), 0);
  EXPECT_EQ(snapshot({"checkpoint.every_steps=0"}), 0);
  EXPECT_GT(snapshot({"checkpoint={every_steps: 0, every_minutes: 5}"}), 0);
  EXPECT_GT(snapshot({"checkpoint.asynchronous=false", "run.device=cuda"}), 0)
      << "files are written from memory of the host";
  const std::string text = plan::plan_text(planned(2, {"parallel.bucket_elements=30000"}));
  EXPECT_THAT(text, HasSubstr("2 ranks, shard: optimizer"));
  EXPECT_THAT(text, HasSubstr("wte.weight\n"));
  EXPECT_THAT(text, HasSubstr("ln_f.bias .. "));
}

TEST(PlanCommand, WritesItsFileOnceAndNeverOverAnother) {
  const test::ScratchDirectory scratch;
  const std::string& directory = scratch.path();
  const std::string deck = directory + "/deck.yaml", json = directory + "/plan.json";
  std::ofstream(deck) << deck::completed("");
  plan_command({deck, {}}, {.ranks = 2}, {json});
  std::stringstream bytes;
  bytes << std::ifstream(json).rdbuf();
  EXPECT_EQ(number(read_json(bytes.str()), "ranks"), 2);
  EXPECT_THROW(plan_command({deck, {}}, {.ranks = 4}, {json}), UserError);
  std::stringstream again;
  again << std::ifstream(json).rdbuf();
  EXPECT_EQ(again.str(), bytes.str());
  EXPECT_THROW(plan_command({deck, {}}, {.ranks = 2}, {directory + "/no/plan.json"}), UserError);
}

TEST(PlanCommand, SaysHowLongRanksIdleThatDoNotDivideTheBatch) {
  const std::string deck = std::string(TRIREME_INPUT) + "/gpt2-124m.yaml";
  for (const int ranks : {3, 7, 600, 4096}) {
    const std::string text = plan_command({deck, {}}, {.ranks = ranks}, {});
    EXPECT_THAT(text, HasSubstr(fmt::format("{} ranks, shard: optimizer", ranks)));
    EXPECT_THAT(text, HasSubstr("so some idle for"));
  }
  EXPECT_THAT(plan_command({deck, {}}, {.ranks = 64}, {}), testing::Not(HasSubstr("idle for")));
}

}  // namespace
}  // namespace trireme::cli
