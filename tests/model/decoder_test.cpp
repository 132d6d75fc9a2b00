// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "model/small_model.hpp"
#include "ops/cached_attention.hpp"

#include "support/gpu.hpp"

namespace trireme::model::testing {
namespace {

using Logits = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

class DecoderTest : public ::testing::TestWithParam<test::Backend> {
 protected:
  void SetUp() override {
    const auto device = test::make_device(GetParam(), 1);
    if (!ops::has_cached_attention(*device))
      GTEST_SKIP() << "CPUs alone decode";
  }

  /// A model, a decoder over the same views, and the logits of both.
  struct Pair {
    explicit Pair(const GptShape& shape, const test::Backend& backend, std::int64_t sequences)
        : model(shape, backend, 1),
          decoder(model.device, shape, backend.dtype, {sequences, shape.context}) {
      std::vector<ConstView> views;
      for (std::size_t i = 0; i < model.values.size(); ++i) {
        const auto n = static_cast<std::int64_t>(model.values[i].size());
        views.push_back(backend.dtype == DType::bf16
                            ? ConstView(view_of(model.rounded[i].data(), n))
                            : ConstView(view_of(model.values[i].data(), n)));
      }
      decoder.bind(views);
    }
    Logits read(std::int64_t sequence, std::int64_t first, const Tokens& tokens) {
      Logits logits(static_cast<std::size_t>(model.shape.vocabulary));
      decoder.read(sequence, first, tokens, view_of(logits.data(), model.shape.vocabulary),
                   model.hooks, *model.stream);
      return logits;
    }
    Logits step(const std::vector<Decoder::Row>& rows) {
      Logits logits(rows.size() * static_cast<std::size_t>(model.shape.vocabulary));
      decoder.step(rows, view_of(logits.data(), std::ssize(logits)), model.hooks, *model.stream);
      return logits;
    }
    SmallModel model;
    Decoder decoder;
  };

  /// Equal to the bit if a row of a product does not depend on the other rows.
  void expect_equal(Pair& pair, const Logits& got, const Logits& expected) {
    const DType dtype = GetParam().dtype;
    ASSERT_EQ(got.size(), expected.size());
    if (dtype == DType::f32 && pair.model.device.kind() == device::Kind::cpu)
      EXPECT_EQ(got, expected);
    else
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], dtype == DType::f32 ? 1e-5 : 0.1) << i;
  }

  static GptShape longer_shape() {
    return {.layers = 2, .heads = 3, .channels = 48, .context = 300, .vocabulary = 40};
  }
  static GptShape longer_llama() {
    GptShape shape = small_llama();
    shape.heads = 4;
    shape.grouped_heads = 2;
    shape.channels = 48;
    shape.context = 150;
    return shape;
  }
  static GptShape longer_nanochat() {
    GptShape shape = small_nanochat();
    shape.heads = 2;
    shape.channels = 24;
    shape.context = 80;
    return shape;
  }
  static GptShape longer_qwen3() {
    GptShape shape = longer_llama();
    shape.head_width = 20;
    shape.qk_norm = QkNorm::with_gain;
    return shape;
  }
};

TEST_P(DecoderTest, TokenByTokenItGivesWhatTheWholeModelGives) {
  GptShape capped = small_llama();
  capped.logit_softcap = 1;
  GptShape windowed = longer_shape(), windowed_llama = longer_llama();
  windowed.attention_window = 70;
  windowed_llama.attention_window = 17;
  GptShape pattern = windowed_llama;
  pattern.long_layers = long_layers("SL", pattern.layers);
  GptShape documents = longer_shape(), windowed_documents = pattern;
  documents.document_token = 3;
  windowed_documents.document_token = 3;
  for (const GptShape& shape : {small_shape(), longer_shape(), small_llama(), longer_llama(),
                                longer_qwen3(), longer_nanochat(), capped, windowed, windowed_llama,
                                pattern, documents, windowed_documents}) {
    Pair pair(shape, GetParam(), 1);
    const Tokens text = random_tokens(shape.context, shape.vocabulary, 3);
    for (std::int64_t t = 0; t < shape.context; ++t) {
      const Tokens so_far(text.begin(), text.begin() + t + 1);
      const Logits logits = pair.read(0, t, {text[static_cast<std::size_t>(t)]});
      if (t % 64 < 3 || t % 64 == 63 || t + 1 == shape.context)  // around the borders of tiles
        expect_equal(pair, logits, pair.model.next_logits(so_far));
      if (HasFailure())
        FAIL() << "position " << t << " of " << shape.context;
    }
  }
}

TEST_P(DecoderTest, AQwen3ReadsAPromptAtOnce) {
  Pair pair(longer_qwen3(), GetParam(), 2);
  const Tokens text = random_tokens(150, 11, 4);
  for (const std::int64_t length : {1, 2, 65, 150}) {
    const Tokens prompt(text.begin(), text.begin() + length);
    expect_equal(pair, pair.read(1, 0, prompt), pair.model.next_logits(prompt));
  }
}

TEST_P(DecoderTest, DocumentsArePartOfWhatASequenceKeeps) {
  GptShape shape = longer_shape();
  shape.document_token = 3;
  Pair pair(shape, GetParam(), 2);
  Tokens text(300, 1), other(300, 2);
  for (const std::size_t begin : {50U, 128U, 200U}) text[begin] = 3;
  for (std::size_t t = 0; t < text.size(); ++t) text[t] += static_cast<int>(t % 7) * 5 % 31;
  for (const std::size_t begin : {50U, 128U, 200U}) text[begin] = 3;
  other[70] = 3;
  const auto part = [](const Tokens& of, long begin, long end) {
    return Tokens(of.begin() + begin, of.begin() + end);
  };
  // Reads parts that begin inside documents, with another sequence in between.
  pair.read(0, 0, part(text, 0, 40));
  pair.read(1, 0, part(other, 0, 90));
  pair.read(0, 40, part(text, 40, 180));
  expect_equal(pair, pair.read(0, 180, part(text, 180, 300)), pair.model.next_logits(text));
  expect_equal(pair, pair.read(1, 90, part(other, 90, 91)),
               pair.model.next_logits(part(other, 0, 91)));
  // Reads again from the middle of a document.
  text[250] = 30;
  expect_equal(pair, pair.read(0, 250, part(text, 250, 300)), pair.model.next_logits(text));
}

TEST_P(DecoderTest, APromptIsReadAtOnceOrInPieces) {
  Pair pair(longer_shape(), GetParam(), 3);
  const Tokens text = random_tokens(300, 40, 4);
  for (const std::int64_t length : {1, 2, 65, 150, 261, 300}) {
    const Tokens prompt(text.begin(), text.begin() + length);
    const Logits expected = pair.model.next_logits(prompt);
    expect_equal(pair, pair.read(2, 0, prompt), expected);
    if (length < 3)
      continue;
    pair.read(0, 0, {text.begin(), text.begin() + 2});
    pair.read(0, 2, {text.begin() + 2, text.begin() + length - 1});
    expect_equal(pair, pair.read(0, length - 1, {text[static_cast<std::size_t>(length - 1)]}),
                 expected);
  }
}

TEST_P(DecoderTest, SequencesOfDifferentLengthsDoNotDisturbOneAnother) {
  Pair pair(longer_shape(), GetParam(), 5), alone(longer_shape(), GetParam(), 1);
  std::vector<Tokens> texts;
  for (std::uint64_t b = 0; b < 5; ++b) {
    const Tokens all = random_tokens(150, 40, 10 + b);
    texts.emplace_back(all.begin(), all.begin() + 1 + static_cast<long>(b) * 20);
    pair.read(static_cast<std::int64_t>(b), 0, texts.back());
  }
  const Tokens more = random_tokens(30, 40, 20);
  for (std::size_t i = 0; i < more.size(); ++i) {
    std::vector<Decoder::Row> rows;
    for (std::size_t b = 5; b-- > 0;)
      if (i < 10 || b != 2) {  // one of them ends early
        rows.push_back(
            {static_cast<std::int32_t>(b), static_cast<std::int32_t>(texts[b].size()), more[i]});
        texts[b].push_back(more[i]);
      }
    const Logits logits = pair.step(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto b = static_cast<std::size_t>(rows[r].sequence);
      const auto row = logits.begin() + static_cast<long>(40 * r);
      if (i + 1 == more.size() || i < 2) {
        EXPECT_EQ(Logits(row, row + 40), alone.read(0, 0, texts[b])) << "sequence " << b;
      }
    }
  }
}

TEST_P(DecoderTest, TakesModelsOfEveryShape) {
  for (int which = 0; which < 3; ++which) {
    GptShape shape = small_shape();
    shape.bias = which != 0;
    shape.tied_head = which != 1;
    if (which > 0)
      shape.recompute = RecomputeKey(
          std::vector{which == 2 ? Recompute::gelu : Recompute::block, Recompute::gelu});
    shape.dropout = 0.1;  // acts in training only
    Pair pair(shape, GetParam(), 1);
    expect_equal(pair, pair.read(0, 0, {3, 1, 4}), pair.model.next_logits({3, 1, 4}));
    EXPECT_EQ(pair.model.hooks.groups.size(), 8U);  // both: embedding, two blocks, the end
  }
}

TEST_P(DecoderTest, RefusesWhatItHasNoPlaceFor) {
  Pair pair(small_shape(), GetParam(), 2);
  EXPECT_THROW(pair.read(0, 0, {}), ContractError);
  EXPECT_THROW(pair.read(0, 5, {1}), ContractError);
  EXPECT_THROW(pair.read(2, 0, {1}), ContractError);
  EXPECT_THROW(pair.read(0, 0, {11}), ContractError);
  EXPECT_THROW(pair.step({{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}), ContractError);
  EXPECT_THROW(pair.decoder.bind({}), ContractError);
  EXPECT_THROW(Decoder(pair.model.device, small_shape(), DType::f32, {257, 1}), ContractError);
}

TRIREME_ON_BACKENDS(DecoderTest);

TEST(DecoderOnGpu, IsRefusedByName) {
  TRIREME_NEEDS_GPU();
  const auto device = device::make_cuda_device(0);
  EXPECT_FALSE(ops::has_cached_attention(*device));
  EXPECT_THROW(Decoder(*device, small_shape(), DType::f32, {1, 1}), DeviceError);
}

}  // namespace
}  // namespace trireme::model::testing
