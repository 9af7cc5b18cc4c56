#include <doctest/doctest.h>

#include <tuple>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {

const std::string kHeader = "name\tdtype\tshape\tnumel\n";

Manifest parsed(const std::string& text) { return parse_tsv(text, "my.tsv"); }
Caught refusal(const std::string& text) {
  return caught([&] { (void)parsed(text); });
}
// Of one row under the plain header.
Caught row_refusal(const std::string& row) { return refusal(kHeader + row + "\n"); }

}  // namespace

TEST_CASE("every real table is read with its totals and written back byte by byte") {
  for (const std::string& table : real_tables()) {
    CAPTURE(table);
    const std::string text = read_all(table_path(table));
    REQUIRE(text.find("\n#total\t") != std::string::npos);
    CHECK(to_tsv(parse_tsv(text, table)) == text);
  }
  CHECK(load_tsv(table_path("resnet34")).size() == 110);
}

TEST_CASE("empty tensors, scalars, deep shapes, long and UTF-8 names keep their shapes") {  // pytorch#87280, pytorch#144045
  const Manifest manifest = load_tsv(table_path("edge_cases"));
  const auto shape = [&](const char* name) { return manifest.parameters().at(manifest.find_name(name)).shape; };
  using Shape = std::vector<std::int64_t>;
  CHECK(shape("net2.weight") == Shape{0, 10});
  CHECK(shape("zero.weight") == Shape{0, 4});
  CHECK(shape("net2.bias") == Shape{0});
  CHECK(shape("temperature") == Shape{});
  CHECK(shape("log_multiplier") == Shape{1});
  CHECK(shape("deep.weight") == Shape{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(shape("schicht.größe.重み") == Shape{3});
  CHECK(manifest.parameters()[11].name.size() > 250);
}

TEST_CASE("optional columns are found by name, in any order") {
  const Manifest manifest = parsed("name\tdtype\tshape\tnumel\torder\taliases\tgroup\n"
                                   "a\tf16\t5x3\t15\tF\tb|c\tg\nd\tbfloat16\t()\t1\tC\t\t\n");
  CHECK(manifest.parameters()[0].order == Order::f);
  CHECK(manifest.parameters()[0].aliases == std::vector<std::string>{"b", "c"});
  CHECK(manifest.parameters()[0].group == "g");
  CHECK(manifest.parameters()[1].aliases.empty());
  CHECK(manifest.parameters()[1].group.empty());
}

TEST_CASE("optional columns are written only where they say something") {
  CHECK(to_tsv(make_manifest({make_parameter("a")})) == kHeader + "a\tfloat32\t2\t2\n#total\t1 tensors\t-\t2\n");
  CHECK(to_tsv(make_manifest({tied("a", {"b", "c"})})).starts_with("name\tdtype\tshape\tnumel\taliases\na\tfloat32\t2\t2\tb|c\n"));
  CHECK(to_tsv(make_manifest({column_major(make_parameter("a", DType::f64, {2, 2}))}))
            .starts_with("name\tdtype\tshape\tnumel\torder\na\tfloat64\t2x2\t4\tF\n"));
}

TEST_CASE("any manifest is the same after writing and reading") {
  CHECK(rc::check([] {
    const Manifest manifest = any_manifest();
    const Manifest again = parse_tsv(to_tsv(manifest), "memory");
    RC_ASSERT(to_tsv(again) == to_tsv(manifest));
    for (std::size_t i = 0; i < manifest.size(); ++i) {
      const Parameter& a = manifest.parameters()[i];
      const Parameter& b = again.parameters()[i];
      RC_ASSERT(std::tie(a.name, a.dtype, a.order, a.shape, a.group, a.aliases, a.id, a.numel) ==
                std::tie(b.name, b.dtype, b.order, b.shape, b.group, b.aliases, b.id, b.numel));
    }
  }));
}

TEST_CASE("what TSV cannot express is refused when writing, not changed") {
  CHECK(caught([] { (void)to_tsv(make_manifest({make_parameter("#a")})); }).says("parameter '#a' cannot be written as TSV"));
  CHECK(caught([] { (void)to_tsv(make_manifest({tied("a", {"b|c"})})); }).says("alias 'b|c' of parameter 'a' cannot be written"));
  CHECK(parsed(to_tsv(make_manifest({make_parameter("a|b #c")}))).find_name("a|b #c") == 0);
}

TEST_CASE("Windows line ends, a byte order mark, comments, empty lines and a missing last line end are accepted") {
  CHECK(parsed("name\tdtype\tshape\tnumel\r\na\tf32\t2\t2\r\n#total\t1 tensors\t-\t2\r\n").size() == 1);
  CHECK(parsed("\xef\xbb\xbf" + kHeader + "a\tf32\t2\t2\n").size() == 1);
  CHECK(parsed(kHeader + "# a comment\n\na\tf32\t2\t2\n#another\n").size() == 1);
  CHECK(parsed(kHeader + "a\tf32\t2\t2").size() == 1);
  CHECK(parsed(kHeader + "a\tf32\t2\t2\n#total\t1 tensors\t-\t2").size() == 1);
  CHECK(parsed(kHeader).size() == 0);
}

TEST_CASE("a wrong header is refused") {
  CHECK(refusal("").sentence.starts_with("my.tsv, line 1: the file is empty; expected a header line"));
  for (const char* header : {"\n", "a\tfloat32\t2\t2\n", "name\tdtype\tshape\n", "dtype\tname\tshape\tnumel\n", "name dtype shape numel\n",
                             "#name\tdtype\tshape\tnumel\n", "Name\tdtype\tshape\tnumel\n", "\xff\xfen\0a\0m\0e\0"}) {
    CAPTURE(header);
    const Caught fault = refusal(header);
    CHECK(fault.status == Status::bad_layout);
    CHECK(fault.says("my.tsv, line 1: expected the header line"));
  }
  CHECK(refusal("name\tdtype\tshape\tnumel\tcolour\n").says("unknown column 'colour'"));
  CHECK(refusal("name\tdtype\tshape\tnumel\t\n").says("unknown column ''"));
  CHECK(refusal("name\tdtype\tshape\tnumel\tgroup\tgroup\n").says("column 'group' is there twice"));
  CHECK(refusal("name\tdtype\tshape\tnumel\tname\n").says("column 'name' is there twice"));
}

TEST_CASE("a row with another number of fields than the header is refused") {
  CHECK(row_refusal("a\tf32\t2").says("my.tsv, line 2: expected 4 fields separated by tabs, as the header has, and found 3"));
  CHECK(row_refusal("a\tf32\t2\t2\t").says("found 5"));
  CHECK(row_refusal(" ").says("found 1"));
  CHECK(row_refusal(std::string(1'000'000, '\t')).says("found 1,000,001"));
}

TEST_CASE("bad shapes are refused") {
  for (const std::string& shape : {std::string("0x"), std::string("x3"), std::string("-1"), std::string("1x"), std::string("1xx2"), std::string(),
                                   std::string("x"), std::string("("), std::string("(1)"), std::string("1,2"), std::string("1X2"),
                                   std::string("01"), std::string("0x0x"), std::string("+1"), std::string("1 "), std::string("1.0"),
                                   std::string("9223372036854775808"), std::string("99999999999999999999999"), std::string("1\0", 2)}) {
    CAPTURE(shape);
    CHECK(row_refusal("a\tf32\t" + shape + "\t1").says("my.tsv, line 2: bad shape '"));
  }
  CHECK(row_refusal("a\tf32\t9223372036854775807\t1").says("2^62 bytes or more"));
  CHECK(row_refusal("a\tf32\t4294967296x4294967296\t0").says("2^62 bytes or more"));
  CHECK(row_refusal("a\tf32\t1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1\t1").says("has 17 dimensions"));
}

TEST_CASE("a wrong number of elements is refused with the right one") {
  CHECK(row_refusal("a\tf32\t3x4\t13").says("line 2: parameter 'a' has numel '13', but its shape has 12 elements"));
  for (const char* numel : {"", "-12", "12x", "012", "0xc", "12.0", "99999999999999999999999"}) {
    CHECK(row_refusal(std::string("a\tf32\t3x4\t") + numel).says("but its shape has 12 elements"));
  }
}

TEST_CASE("bad names, dtypes and orders are refused with their line") {
  CHECK(row_refusal("\tf32\t2\t2").says("my.tsv, line 2: parameter '' has an empty name"));
  CHECK(row_refusal("a\x01\tf32\t2\t2").says("parameter 'a\\x01' has control characters"));
  CHECK(row_refusal("a\xff\tf32\t2\t2").says("parameter 'a\\xff' is not UTF-8"));
  CHECK(row_refusal(std::string(1025, 'a') + "\tf32\t2\t2").says("a name of 1,025 bytes"));
  CHECK(row_refusal("a\tint8\t2\t2").says("unknown dtype 'int8'; known are"));
  CHECK(row_refusal("a\tf32\t2\t2\nb\tf32\t2\t2\na\tf32\t2\t2").says("line 4: parameter 'a' is registered twice (positions 0 and 2)"));
  CHECK(refusal("name\tdtype\tshape\tnumel\torder\na\tf32\t2\t2\tc\n").says("unknown order 'c'"));
  CHECK(refusal("name\tdtype\tshape\tnumel\taliases\na\tf32\t2\t2\tb||c\n").says("has an alias that has an empty name"));
  CHECK(refusal("name\tdtype\tshape\tnumel\tgroup\na\tf32\t2\t2\t\x02\n").says("has a group that has control characters"));
}

TEST_CASE("a wrong total, rows behind it or a second one are refused") {
  const std::string row = kHeader + "a\tf32\t2\t2\n";
  for (const char* total : {"#total\t2 tensors\t-\t2", "#total\t1 tensors\t-\t3", "#total", "#total 1 tensors - 2", "#total\t1\t-\t2",
                            "#total\t1 tensors\t-\t2\t", "#total\t1 tensors\t-\t"}) {
    CAPTURE(total);
    CHECK(refusal(row + total).says("my.tsv, line 3: the total is '"));
  }
  CHECK(refusal(row + "#total\t1 tensors\t-\t2\nb\tf32\t2\t2\n").says("line 4: a row after the #total line"));
  CHECK(refusal(row + "#total\t1 tensors\t-\t2\n#total\t1 tensors\t-\t2\n").says("line 4: a second #total line"));
}

TEST_CASE("messages escape the file's name and never repeat megabytes") {
  CHECK(caught([] { (void)parse_tsv("", "\x1b[2J.tsv"); }).sentence.starts_with("\\x1b[2J.tsv, line 1"));
  CHECK(row_refusal("a\t" + std::string(1'000'000, 'f') + "\t2\t2").sentence.size() < 300);
  CHECK(refusal(std::string(1'000'000, 'f')).sentence.size() < 300);
}

TEST_CASE("arbitrary and damaged texts are read or refused") {
  CHECK(rc::check([](const std::string& text) { (void)refusal(kHeader + text); }));
  const std::string table = read_all(table_path("edge_cases"));
  for (std::size_t size = 0; size < table.size(); ++size) (void)refusal(table.substr(0, size));
  for (std::size_t at = 0; at < table.size(); ++at) {
    for (const char c : {'\0', '\t', '\n', '\r', '#', 'x', '0', '\xff'}) {
      std::string changed = table;
      changed[at] = c;
      (void)refusal(changed);
    }
  }
}
