// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "base/text.hpp"

namespace trireme {
namespace {

TEST(JsonText, IsJsonOnATerminalToo) {
  const std::string word = "a\x7f\xc2\x80\xc2\x9f\xc2\xa0\xc3\xbc\t\x01";
  const std::string text = json_line(Json{{word, word}});
  EXPECT_EQ(for_terminal(text), text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(text), (Json{{word, word}}));
  EXPECT_EQ(json_line(Json("\xff\xc2")), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(JsonText, OfNumbersKeepsTypeAndValue) {
  EXPECT_EQ(json_line(Json(3.0)), "3.0");
  EXPECT_EQ(json_line(Json(std::int64_t{3})), "3");
  EXPECT_EQ(Json::parse(json_line(Json(0.1))).get<double>(), 0.1);
  EXPECT_EQ(json_line(Json(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(json_text(Json{{"a", 1}}), "{\n \"a\": 1\n}\n");
}

}  // namespace
}  // namespace trireme
