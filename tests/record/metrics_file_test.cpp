// SPDX-License-Identifier: Apache-2.0
#include "record/run/metrics_file.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Metrics : public testing::Test {
 protected:
  [[nodiscard]] MetricsFile file(const std::string& name = "a") {
    return {path_, name, "id-1", [this](const std::string& text) { warnings_.push_back(text); }};
  }

  const test::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "run.prom";
  std::vector<std::string> warnings_;
};

TEST_F(Metrics, AreTheKnownColumnsOfARow) {
  MetricsFile metrics = file("a \"b\"\\\n\t");
  metrics.write({.step = 7, .loss = 2.5, .tokens = 4096});
  const std::string labels = "{run=\"a \\\"b\\\"\\\\\\n\t\",run_id=\"id-1\"}";
  const std::string text = text_in(path_);
  EXPECT_THAT(text, HasSubstr("\n# TYPE trireme_loss gauge\ntrireme_loss" + labels + " 2.5\n"));
  EXPECT_THAT(text, HasSubstr("\ntrireme_step" + labels + " 7\n"));
  EXPECT_THAT(text, HasSubstr("\n# HELP trireme_tokens Tokens trained on"));
  EXPECT_THAT(text, Not(HasSubstr("trireme_bits_per_byte")));  // not known
  metrics.write({.step = 8});
  EXPECT_THAT(text_in(path_), HasSubstr("\ntrireme_step" + labels + " 8\n"));
  file().write({.step = 9});  // of a later start
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 1);
}

TEST_F(Metrics, NeverReplaceAnotherFile) {
  MetricsFile metrics = file();
  metrics.write({.step = 1});
  std::filesystem::remove(path_);
  std::ofstream(path_) << "mine\n";
  EXPECT_THROW((void)file(), UserError);
  metrics.write({.step = 2});
  metrics.write({.step = 3});
  EXPECT_EQ(text_in(path_), "mine\n");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("trireme did not write what is here"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("elsewhere", path_);
  EXPECT_THROW((void)file(), UserError);
}

TEST_F(Metrics, AreDueEveryFewSeconds) {
  MetricsFile metrics = file();
  EXPECT_TRUE(metrics.due(100));
  EXPECT_FALSE(metrics.due(100 + MetricsFile::every_s - 0.1));
  EXPECT_TRUE(metrics.due(100 + MetricsFile::every_s));
}

TEST(MetricsInNoDirectory, AreAWarning) {
  std::vector<std::string> warnings;
  MetricsFile metrics("/no/such/folder/a.prom", "a", "b",
                      [&](const std::string& text) { warnings.push_back(text); });
  metrics.write({});
  metrics.write({});
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("cannot be written")));
}

}  // namespace
}  // namespace trireme::record
