#include "cli_text.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cli_table.hpp"

using namespace gradshm::tools;

TEST_CASE("durations are shown in two digits or two units") {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  CHECK(format_duration(0) == "0.0 us");
  CHECK(format_duration(850'000) == "850 us");
  CHECK(format_duration(999'600) == "1.0 ms");
  CHECK(format_duration(2'100'000) == "2.1 ms");
  CHECK(format_duration(999'600'000) == "1.0 s");
  CHECK(format_duration(2'100'000'000) == "2.1 s");
  CHECK(format_duration(99 * kSecond) == "99 s");
  CHECK(format_duration(192 * kSecond) == "3 min 12 s");
  CHECK(format_duration(2 * 3600 * kSecond + 300 * kSecond) == "2 h 5 min");
  CHECK(format_duration(98 * 3600 * kSecond) == "4 d 2 h");
  CHECK(format_duration(std::numeric_limits<std::uint64_t>::max()) == "213503 d 23 h");
}

TEST_CASE("a time that lies in the future counts as now") {
  CHECK(elapsed_ns(5, 3) == 2);
  CHECK(elapsed_ns(3, 5) == 0);
}

TEST_CASE("numbers that are none are shown in words") {
  CHECK(format_number(48.19) == "48.2");
  CHECK(format_number(std::nan("")) == "nan");
  CHECK(format_number(-std::nan("")) == "nan");
  CHECK(format_number(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(format_number(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("the width of text is that on a terminal") {
  CHECK(columns_of("rank") == 4);
  CHECK(columns_of("\u00e9\u00e9") == 2);
  CHECK(columns_of("e\u0301") == 1);
  CHECK(columns_of("\u8a13\u7df4") == 4);
  CHECK(columns_of("\U0001f600") == 2);
}

TEST_CASE("text is clipped to columns, never inside a character") {
  CHECK(clip("rank", 4) == "rank");
  CHECK(clip("rank", 3) == "ra~");
  CHECK(clip("rank", 1) == "~");
  CHECK(clip("rank", 0) == "");
  CHECK(clip("\u8a13\u7df4", 3) == "\u8a13~");
  CHECK(clip("\u8a13\u7df4", 2) == "~");
}

TEST_CASE("lines break between pieces, and a longer piece is clipped") {
  CHECK(wrap({"aa", "bb", "cc"}, "  ", 6) == std::vector<std::string>{"aa  bb", "cc"});
  CHECK(wrap({"aaaaaaaa", "b"}, "  ", 4) == std::vector<std::string>{"aaa~", "b"});
  CHECK(wrap_words("round 812 is open", 9) == std::vector<std::string>{"round 812", "is open"});
  CHECK(wrap_words("", 9).empty());
}

TEST_CASE("ranks are shown as ranges") {
  CHECK(format_ranks({}) == "none");
  CHECK(format_ranks({7}) == "7");
  CHECK(format_ranks({0, 1, 2, 3, 7, 9, 10}) == "0-3,7,9-10");
  CHECK(ranks_of({1, 0, 2, 1ull << 63}) == std::vector<int>{0, 129, 255});
}

namespace {
const std::vector<Column> kColumns{{"rank", Column::Align::right, 9, 0}, {"state", Column::Align::left, 5, 0}, {"label", Column::Align::left, 3, 4}};
const std::vector<Row> kRows{{"0", "member", "a"}, {"17", "paused", "training run"}};
}  // namespace

TEST_CASE("a table aligns its columns") {
  CHECK(format_table(kColumns, kRows, 80) == std::vector<std::string>{"rank  state   label", "   0  member  a", "  17  paused  training run"});
}

TEST_CASE("a table that is too wide clips what may be clipped, then drops columns") {
  CHECK(format_table(kColumns, kRows, 20)[2] == "  17  paused  train~");
  CHECK(format_table(kColumns, kRows, 17) == std::vector<std::string>{"rank  state", "   0  member", "  17  paused"});
  CHECK(format_table(kColumns, kRows, 5) == std::vector<std::string>{"rank", "   0", "  17"});
  CHECK(format_table(kColumns, kRows, 2) == std::vector<std::string>{"r~", " 0", "17"});
}

TEST_CASE("a table without rows has its titles") { CHECK(format_table(kColumns, {}, 80) == std::vector<std::string>{"rank  state  label"}); }
