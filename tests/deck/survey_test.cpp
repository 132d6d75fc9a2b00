// SPDX-License-Identifier: Apache-2.0
#include "deck/survey.hpp"

#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/bad_deck.hpp"
#include "deck/value_range.hpp"
#include "deck/values.hpp"

namespace trireme::deck {
namespace {

/// Sets every key to an allowed value that is not its default; `round` picks one of several. The
/// test fails, not skips, for a key type or range that it does not know.
class Alter {
 public:
  Alter(int round, int& keys) : round_(round), keys_(keys) {}

  template <class T>
  void operator()(const char* name, T& value, const Key<T>& key) {
    ++keys_;
    const T before = value;
    change(value, key);
    constexpr bool one_choice = one_word<T>();
    EXPECT_EQ(value == before, one_choice) << name;
    EXPECT_FALSE(range_problem(value, key).has_value()) << name;
  }
  template <class S>
  void list(const char*, std::vector<S>& items, const ListKey&) {
    int inside = 0;
    Alter alter(round_, inside);
    describe(alter, items.emplace_back());
    EXPECT_GT(inside, 0);
    ++keys_;
  }
  template <class S>
  void section(const char*, S& config) {
    describe(*this, config);
  }

 private:
  template <class T>
  static constexpr bool one_word() {
    if constexpr (NamedEnum<T>)
      return std::size(EnumNames<T>::table) == 1;
    else
      return false;
  }

  template <class K>
  void change(bool& value, const Key<K>&) {
    value = !value;
  }
  template <class K>
  void change(std::int64_t& value, const Key<K>& key) {
    const std::int64_t step = 1 + 37 * round_ + keys_;
    const std::int64_t least = key.min.value_or(0);
    const std::int64_t fresh = key.max ? least + step % (*key.max - least + 1) : value + step;
    value = fresh != value ? fresh : fresh > least ? fresh - 1 : fresh + 1;
  }
  template <class K>
  void change(double& value, const Key<K>& key) {
    // A fraction with many digits, between the default and a bound or beyond the default.
    const double target = key.max && *key.max != value ? *key.max : key.min.value_or(value - 1);
    value += (target - value) * (0.1 + 0.8 * std::fmod(round_ * 0.6180339887498949, 1.0));
  }
  template <class K>
  void change(Duration& value, const Key<K>&) {
    value.seconds += round_ == 0 ? 5405 : 0.1 + round_ / 3.0;
  }
  template <class K>
  void change(std::string& value, const Key<K>&) {
    static const std::vector<std::string> awkward = {"a: b # c",
                                                     "auto",
                                                     "none",
                                                     "null",
                                                     "true",
                                                     "010",
                                                     "- x",
                                                     "[a]",
                                                     "{a: b}",
                                                     "*x",
                                                     "&x",
                                                     "!x",
                                                     "a\nb\tc",
                                                     "\"'\\",
                                                     " blank ",
                                                     "ünïcode",
                                                     "~",
                                                     "<<",
                                                     "\x01\x7f",
                                                     "a\r\nb",
                                                     "C:\\new",
                                                     "%x",
                                                     "@x",
                                                     "`x`",
                                                     "key: ",
                                                     "trailing:",
                                                     "a, b",
                                                     "\u2028x\u0085",
                                                     "?",
                                                     "|",
                                                     ">",
                                                     "---",
                                                     "# not comment",
                                                     "0x10",
                                                     ".nan",
                                                     "y",
                                                     "=",
                                                     "a#b",
                                                     "\n",
                                                     "\t",
                                                     "-",
                                                     "."};
    std::size_t at = static_cast<std::size_t>(keys_) + 7 * static_cast<std::size_t>(round_);
    while (awkward[at % awkward.size()] == value) ++at;
    value = awkward[at % awkward.size()];
  }
  template <class K>
  void change(std::vector<std::string>& value, const Key<K>& key) {
    value.clear();
    for (int i = 0; i <= round_ % 3; ++i) {
      ++keys_;
      change(value.emplace_back(), key);
    }
    keys_ -= round_ % 3 + 1;
  }
  template <NamedEnum E, class K>
  void change(E& value, const Key<K>&) {
    const std::size_t count = std::size(EnumNames<E>::table);
    for (std::size_t i = 0; i < count; ++i)
      if (EnumNames<E>::table[i].first == value) {
        const std::size_t steps =
            count == 1 ? 0 : 1 + static_cast<std::size_t>(round_) % (count - 1);
        value = EnumNames<E>::table[(i + steps) % count].first;
        return;
      }
  }
  template <class E, class K>
  void change(NumberOr<E>& value, const Key<K>& key) {
    if (round_ % 2 == 0) {
      change(value.keyword, key);
      return;
    }
    std::int64_t number = value.number.value_or(key.min.value_or(0));
    change(number, key);
    value.number = number;
  }
  /// Another word, a list, or a limit.
  template <NamedEnum E, class K>
  void change(WordsOrBytes<E>& value, const Key<K>& key) {
    E word{};
    change(word, key);
    if (round_ % 3 == 0)
      value = word;
    else if (round_ % 3 == 1)
      value = WordsOrBytes<E>(std::vector<E>(static_cast<std::size_t>(round_ / 3), word));
    else
      value = WordsOrBytes<E>(Bytes{(std::int64_t{1} << (round_ / 2)) * (round_ + 1)});
  }
  template <class T, class K>
  void change(Or<T>& value, const Key<K>& key) {
    T inner{};
    change(inner, key);
    value.value = inner;
  }

  int round_;
  int& keys_;
};

Deck altered(int round, int& keys) {
  Deck deck{{}, KeyPlaces("deck.yaml")};
  Alter alter(round, keys);
  describe(alter, deck.config);
  return deck;
}

TEST(Echo, ReadsBackToTheSameConfigForEveryKey) {
  for (int round = 0; round < 60; ++round) {
    int keys = 0;
    const Deck deck = altered(round, keys);
    ASSERT_EQ(keys, static_cast<int>(survey(deck.config).size()));
    const std::string text = echo(deck);
    const Deck again = parse(text, "deck.resolved.yaml", {});
    EXPECT_EQ(values_of(again.config), values_of(deck.config)) << text;
    for (const Entry& entry : survey(again.config))
      EXPECT_TRUE(again.places.given(entry.path)) << entry.path << " is not in the echo";
  }
}

TEST(Echo, IsADeckWithoutMistakes) {
  const Circumstances circumstances{.ranks = 2, .reads_weights = false};
  std::vector<std::string> words{""};
  for (const char* word :
       {"data.validation.tokens=[a.bin]", "optimizer.kind=muon", "model.family=llama",
        "checkpoint.every_steps=0", "evaluate.every_steps=0", "optimizer.schedule.kind=wsd",
        "optimizer.schedule.kind=constant", "run.walltime=1:00:00", "run.precision=bf16",
        "parallel.shard=parameters", "model.recompute=block"})
    words.emplace_back(word);
  int valid = 0;
  for (const std::string& word : words) {
    std::vector<Diagnostic> findings;
    std::vector<std::string> overrides;
    if (!word.empty())
      overrides.push_back(word);
    const Deck deck = examine(completed(""), "deck.yaml", overrides, circumstances, findings);
    if (!findings.empty()) {
      ADD_FAILURE() << word << ": " << to_string(findings.front());
      continue;
    }
    ++valid;
    examine(echo(deck), "deck.resolved.yaml", {}, circumstances, findings);
    for (const Diagnostic& finding : findings) ADD_FAILURE() << word << ": " << to_string(finding);
  }
  EXPECT_GT(valid, 5);
}

TEST(Echo, NamesTheSourceOfEachValue) {
  const Deck deck =
      parse(completed("optimizer:\n  beta1: 0.8\n"), "my deck.yaml", {"run.steps=77"});
  const std::string text = echo(deck);
  EXPECT_THAT(text, testing::ContainsRegex("\n  beta1: 0.8 +# my deck.yaml:2:10\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n  steps: 77 +# command line:1:11\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n  beta2: 0.95 +# default\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n    kind: cosine +# default\n"));
}

TEST(Echo, SurvivesAwkwardFileNames) {
  Deck deck = parse(completed(""), "a\nrun: {seed: 5}", {});
  EXPECT_EQ(values_of(parse(echo(deck), "deck.resolved.yaml", {}).config), values_of(deck.config));
}

TEST(JobOf, HasValuesForTheRecord) {
  const session::Job job = job_of(
      parse(completed(""), "deck.yaml",
            {"run.walltime=0:01:00", "memory.pool=false", "data.cache=here", "data.skip=[4-5]",
             "model.recompute={memory: 60 GiB}", "batch.schedule=[{step: 3, sequences: 8}]"}));
  const std::map<std::string, std::string> values(job.deck.begin(), job.deck.end());
  EXPECT_EQ(values.at("run.steps"), "10");
  EXPECT_EQ(values.at("run.walltime"), "60");
  EXPECT_EQ(values.at("run.threads"), "auto");
  EXPECT_EQ(values.at("memory.pool"), "false");
  EXPECT_EQ(values.at("data.cache"), "here");
  EXPECT_EQ(values.at("data.train.text"), "[]");
  EXPECT_EQ(values.at("data.skip"), "[\"4-5\"]");
  EXPECT_EQ(values.at("model.recompute"), "\"{memory: 60 GiB}\"");
  EXPECT_EQ(values.at("batch.schedule"), "[\"{step: 3, sequences: 8}\"]");
  EXPECT_EQ(values.at("optimizer.schedule.kind"), "cosine");
  EXPECT_EQ(values.at("optimizer.beta1"), "0.9");
}

/// Joins the lines of `text` from `at` on that state a key's values into one line.
std::string takes_of(const std::string& text, std::size_t at) {
  std::string line;
  constexpr std::size_t indent = 35;
  do {
    const std::size_t end = text.find('\n', at);
    line += (line.empty() ? "" : " ") + text.substr(at, end - at);
    at = end + 1;
  } while (text.compare(at, indent, std::string(indent, ' ')) == 0 && (at += indent) != 0);
  return line;
}

/// The help of the key whose line begins at `at`, on one line.
std::string text_of(const std::string& text, std::size_t at) {
  std::string words;
  std::istringstream lines(text.substr(text.find('\n', at) + 1));
  for (std::string line; std::getline(lines, line) && line.starts_with("    ");)
    if (!line.starts_with(std::string(35, ' ')))
      words += " " + line.substr(4);
  return words;
}

TEST(Help, ExplainsEveryKeyOnce) {
  const std::string text = help();
  std::set<std::string> paths;
  for (const Entry& entry : survey(JobConfig{})) {
    SCOPED_TRACE(entry.path);
    EXPECT_TRUE(paths.insert(entry.path).second) << "described twice";
    const std::size_t at = ("\n" + text).find("\n" + entry.path + " ");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(("\n" + text).find("\n" + entry.path + " ", at + 1), std::string::npos);
    const std::string line = takes_of(text, at);
    EXPECT_THAT(line, testing::HasSubstr(entry.type));
    EXPECT_THAT(line, testing::HasSubstr(entry.unit));
    EXPECT_THAT(line, testing::HasSubstr(entry.range));
    EXPECT_THAT(text_of(text, at),
                testing::EndsWith(entry.required ? " Required." : " Default: " + entry.text + "."));
    // The help is a sentence.
    EXPECT_GE(entry.help.size(), 12U);
    EXPECT_EQ(entry.help.back(), '.');
    EXPECT_FALSE(entry.type.starts_with("integer") && entry.range.empty()) << "a count has a range";
  }
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    EXPECT_LE(end - at, 120U) << text.substr(at, end - at);
  }
}

TEST(Help, NarrowsToASectionOrKey) {
  EXPECT_THAT(help("memory.pool"), testing::StartsWith("memory.pool "));
  EXPECT_THAT(help("optimizer"), testing::HasSubstr("optimizer.schedule.kind"));
  EXPECT_THAT(help("optimizer"), testing::Not(testing::HasSubstr("memory.pool")));
  EXPECT_THAT(help("optimizer.schedule"), testing::StartsWith("optimizer.schedule.kind "));
  EXPECT_THAT(help("data.train.mixture[].weight"),
              testing::StartsWith("data.train.mixture[].weight "));
}

TEST(Help, HintsAtWhatItDoesNotKnow) {
  const auto message = [](const std::string& topic) {
    try {
      help(topic);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("optimiser"),
            "error: a deck has no key or section 'optimiser': did you mean 'optimizer'?");
  EXPECT_EQ(message("beta1"),
            "error: a deck has no key or section 'beta1': did you mean 'optimizer.beta1'?");
  EXPECT_EQ(message("zebra"),
            "error: a deck has no key or section 'zebra': `trireme help deck` lists all keys");
}

}  // namespace
}  // namespace trireme::deck
