// SPDX-License-Identifier: Apache-2.0
// The room `text` for scripts (oracles.py, speed.py): bytes in, bytes out.
//
//   text_tool split PATTERN       documents on standard input; for each the lengths of its pieces
//   text_tool encode TOKENIZER    documents; for each its tokens
//   text_tool decode TOKENIZER    tokens; their bytes
//       A document is its length and its bytes, a list its length and its items; all are int32.
//   text_tool json TOKENIZER      its tokenizer.json
//   text_tool train PATTERN IDS THREADS MEMORY BLOCK OUTPUT FILE ...    a vocabulary
//   text_tool speed TOKENIZER FILE ...         MB of a file per second of a processor, median of 5
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <time.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "corpus/count_texts.hpp"
#include "corpus/train.hpp"
#include "text/write.hpp"

namespace {

using namespace trireme;
using text::Token;

/// Reads documents or lists from standard input one after another.
class Input {
 public:
  [[nodiscard]] bool done() const { return at_ == bytes_.size(); }
  std::string_view next(std::size_t item_bytes) {
    std::int32_t length = 0;
    std::memcpy(&length, bytes_.data() + at_, sizeof length);
    const std::string_view taken = std::string_view(bytes_).substr(
        at_ + sizeof length, static_cast<std::size_t>(length) * item_bytes);
    at_ += sizeof length + taken.size();
    return taken;
  }

 private:
  const std::string bytes_{std::istreambuf_iterator<char>(std::cin), {}};
  std::size_t at_ = 0;
};

void put(const void* items, std::size_t count, std::size_t item_bytes) {
  const auto length = static_cast<std::int32_t>(count);
  std::fwrite(&length, sizeof length, 1, stdout);
  std::fwrite(items, item_bytes, count, stdout);
}

void split(const std::string& pattern) {
  for (Input input; !input.done();) {
    std::vector<std::int32_t> lengths;
    text::split(value_named<text::Pattern>(pattern).value(), input.next(1),
                [&](std::string_view piece) {
                  lengths.push_back(static_cast<std::int32_t>(piece.size()));
                });
    put(lengths.data(), lengths.size(), sizeof(std::int32_t));
  }
}

void encode(const std::string& path) {
  const auto tokenizer = text::load_tokenizer(path);
  for (Input input; !input.done();) {
    std::vector<Token> tokens;
    tokenizer->encode(input.next(1), tokens);
    put(tokens.data(), tokens.size(), sizeof(Token));
  }
}

void decode(const std::string& path) {
  const auto tokenizer = text::load_tokenizer(path);
  for (Input input; !input.done();) {
    const std::string_view bytes = input.next(sizeof(Token));
    std::vector<Token> tokens(bytes.size() / sizeof(Token));
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    std::string out;
    tokenizer->decode(tokens, out);
    put(out.data(), out.size(), 1);
  }
}

void train(const std::vector<std::string>& words) {
  const auto pattern = value_named<text::Pattern>(words.at(0)).value();
  corpus::CountRequest count{.pattern = pattern,
                             .threads = std::stoi(words.at(2)),
                             .memory_bytes = std::stoll(words.at(3)),
                             .block_bytes = std::stoll(words.at(4)),
                             .progress = {}};
  const auto files = tokens::find_text({words.begin() + 6, words.end()}, "FILE").files;
  const auto alone = comm::make_self_world();
  const auto begin = std::chrono::steady_clock::now();
  const auto counted = corpus::count_texts(files, {}, count, *alone);
  const auto middle = std::chrono::steady_clock::now();
  const auto vocabulary = corpus::train_vocabulary(
      counted.kept.pieces(), {.pattern = pattern, .vocabulary = std::stoll(words.at(1))});
  const auto end = std::chrono::steady_clock::now();
  std::printf(
      "%zu distinct pieces of %lld, %d passes, %lld dropped; %.2f s to count, %.2f s to merge\n",
      counted.kept.pieces().size(), static_cast<long long>(counted.pieces), counted.passes,
      static_cast<long long>(counted.kept.dropped()),
      std::chrono::duration<double>(middle - begin).count(),
      std::chrono::duration<double>(end - middle).count());
  corpus::write_tokenizer(words.at(5), vocabulary, "{}\n");
}

/// CPU time of this thread, so that other work on the machine matters less.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void speed(const std::string& path, const std::string& file) {
  const auto tokenizer = text::load_tokenizer(path);
  const std::string input = files::read_whole(file);
  std::vector<Token> tokens;
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    tokens.clear();
    const double begin = thread_seconds();
    tokenizer->encode(input, tokens);
    seconds.push_back(thread_seconds() - begin);
  }
  std::ranges::sort(seconds);
  std::printf("%s %.1f MB/s, %.3f bytes per token\n", file.c_str(),
              static_cast<double>(input.size()) / seconds[2] / 1e6,
              static_cast<double>(input.size()) / static_cast<double>(tokens.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    const std::string& verb = words.at(0);
    if (verb == "split")
      split(words.at(1));
    else if (verb == "encode")
      encode(words.at(1));
    else if (verb == "decode")
      decode(words.at(1));
    else if (verb == "json")
      std::cout << text::tokenizer_json(
          text::listed_vocabulary(text::load_tokenizer(words.at(1))->serialized()));
    else if (verb == "train")
      train({words.begin() + 1, words.end()});
    else
      for (std::size_t i = 2; i < words.size(); ++i) speed(words.at(1), words[i]);
  } catch (const std::exception& problem) {
    const Verdict verdict = verdict_of(problem);
    for (const std::string& line : verdict.lines) std::fprintf(stderr, "%s\n", line.c_str());
    return static_cast<int>(verdict.code);
  }
  return 0;
}
