// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(DiagnosticTest, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(to_string(Diagnostic{{"a.yaml", 3, 17}, "optimizer.beta1", "2 is outside [0, 1)"}),
            "a.yaml:3:17: error: optimizer.beta1: 2 is outside [0, 1)");
  EXPECT_EQ(to_string(Diagnostic{{"a.yaml", 0, 0}, "", "is empty"}), "a.yaml: error: is empty");
  EXPECT_EQ(to_string(Diagnostic{{}, "", "no deck given"}), "error: no deck given");
  EXPECT_EQ(to_string(Diagnostic{{"a\n", 0, 0}, "", "'\x1b[2J\x7f' is not a key"}),
            "a?: error: '?[2J?' is not a key")
      << "a deck's bytes do not command the terminal";
}

TEST(UserErrorTest, CarriesEveryFinding) {
  const UserError error({{{"d", 1, 2}, "x", "one"}, {{"d", 3, 4}, "y", "two"}});
  ASSERT_EQ(error.findings().size(), 2U);
  EXPECT_STREQ(error.what(), "d:1:2: error: x: one\nd:3:4: error: y: two");
}

template <class E>
Verdict verdict_when_thrown(const E& error) {
  try {
    throw E(error);
  } catch (const std::exception& caught) {
    return verdict_of(caught);
  }
}

TEST(VerdictTest, TheUsersMistakeIsTwoAndOneLinePerFinding) {
  const auto verdict =
      verdict_when_thrown(UserError({{{"d", 1, 2}, "x", "one"}, {{"d", 3, 4}, "y", "two"}}));
  EXPECT_EQ(verdict.code, ExitCode::user_error);
  EXPECT_EQ(static_cast<int>(verdict.code), 2);
  EXPECT_THAT(verdict.lines, ElementsAre("d:1:2: error: x: one", "d:3:4: error: y: two"));
}

TEST(VerdictTest, TheEnvironmentIsThreeAndNamesStatementReasonAndRoom) {
  const StorageError error("HDF5", "H5Fopen(run.h5)", "file is truncated",
                           "/elsewhere/src/project/src/h5/file.cpp", 88);
  const auto verdict = verdict_when_thrown(error);
  EXPECT_EQ(static_cast<int>(verdict.code), 3);
  EXPECT_THAT(
      verdict.lines,
      ElementsAre("error: HDF5: H5Fopen(run.h5) failed: file is truncated (h5/file.cpp:88)"));
}

TEST(VerdictTest, LackOfMemoryAndTheSystemsErrorsAreTheEnvironment) {
  EXPECT_EQ(verdict_when_thrown(std::bad_alloc()).code, ExitCode::environment);
  const auto verdict =
      verdict_when_thrown(std::system_error(ENOSPC, std::generic_category(), "write x"));
  EXPECT_EQ(verdict.code, ExitCode::environment);
  EXPECT_THAT(verdict.lines, ElementsAre(HasSubstr("write x: No space left on device")));
}

TEST(VerdictTest, OurOwnBugIsFour) {
  EXPECT_EQ(static_cast<int>(
                verdict_when_thrown(ContractError("expected", "a == b", "1, 2", "x.cpp", 1)).code),
            4);
  EXPECT_EQ(verdict_when_thrown(std::runtime_error("who knows")).code, ExitCode::contract);
}

TEST(ContractTest, AnExpectationReportsTheStatementAndItsValues) {
  const int have = 3, want = 4;
  try {
    TRIREME_EXPECT(have == want, "have {}, want {}", have, want);
    FAIL() << "nothing was thrown";
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected have == want: have 3, want 4"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:"));
  }
  EXPECT_NO_THROW(TRIREME_EXPECT(have < want, "have {}", have));
}

TEST(ContractTest, AssertionsAreCheckedInAuditBuildsOnly) {
  const auto broken = [] { TRIREME_ASSERT(1 + 1 == 3, "arithmetic"); };
  if (TRIREME_AUDIT_ENABLED) {
    EXPECT_THROW(broken(), ContractError);
  } else {
    EXPECT_NO_THROW(broken());
  }
}

TEST(Diagnostic, QuotesBothEndsOfWhatIsTooLong) {
  const std::string line =
      to_string({{"deck.yaml", 1, 2}, "run.name", std::string(400'000, 'x') + "!"});
  EXPECT_LT(line.size(), 2000U);
  EXPECT_NE(line.find("deck.yaml:1:2: error: run.name: xxx"), std::string::npos);
  EXPECT_NE(line.find("(398501 bytes)"), std::string::npos);
  EXPECT_EQ(line.back(), '!');
}

TEST(Verdict, ReportsHowMuchMemoryThereWas) {
  const Verdict verdict = verdict_of(std::bad_alloc());
  EXPECT_EQ(verdict.code, ExitCode::environment);
  EXPECT_NE(verdict.lines.at(0).find("error: out of memory; the process has "), std::string::npos);
}

}  // namespace
}  // namespace trireme
