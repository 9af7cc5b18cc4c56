#include "base/text.hpp"

#include <doctest/doctest.h>

using namespace gradshm::core;

TEST_CASE("escape leaves printable UTF-8 alone and shows control bytes, broken bytes and backslashes") {
  CHECK(escape("schicht.größe.重み") == "schicht.größe.重み");
  CHECK(escape("a\tb\n\x1b[2J") == "a\\x09b\\x0a\\x1b[2J");
  CHECK(escape("a\\b") == "a\\\\b");
  CHECK(escape("\xc2\x85") == "\\xc2\\x85");     // U+0085, a C1 control
  CHECK(escape("\x7f") == "\\x7f");
  CHECK(escape("\u202etxt") == "\\xe2\\x80\\xaetxt");  // would be shown as "txt" reversed
  CHECK(escape("r\u00e9seau \u8a13") == "r\u00e9seau \u8a13");
  CHECK(escape("\xff\xc3") == "\\xff\\xc3");     // never valid; truncated
}

TEST_CASE("is_utf8 refuses overlong forms, surrogates, truncated and too large code points") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("\xf0\x9f\x98\x80"));
  CHECK_FALSE(is_utf8("\xc0\x80"));          // overlong zero
  CHECK_FALSE(is_utf8("\xe0\x80\x80"));      // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  CHECK_FALSE(is_utf8("\xe2\x82"));          // truncated
  CHECK_FALSE(is_utf8("\x80"));
}

TEST_CASE("has_control sees C0, DEL and C1 controls, also behind broken bytes") {
  CHECK_FALSE(has_control("größe"));
  CHECK(has_control(std::string_view("a\0b", 3)));
  CHECK(has_control("a\x7f"));
  CHECK(has_control("\xc2\x9b"));
  CHECK(has_control("\xff\n"));
}

TEST_CASE("numbers read well") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(21797672) == "21,797,672");
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(87190688) == "87.2 MB");
  CHECK(format_bytes(999'999'999) == "1.0 GB");
  CHECK(plural(1, "bucket") == "1 bucket");
  CHECK(plural(1234, "bucket") == "1,234 buckets");
  CHECK(format_hex(0x1f) == "000000000000001f");
}
