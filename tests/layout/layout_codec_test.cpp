#include <doctest/doctest.h>

#include <cstring>
#include <tuple>

#include "layout/hash.hpp"
#include "helpers.hpp"
#include "layout/layout_format.hpp"

using namespace gradshm::core;

namespace {

Layout small_layout() {
  Parameter grouped = column_major(make_parameter("net.weight", DType::f16, {3, 5}));
  grouped.group = "g";
  return {make_manifest({make_parameter("net.bias", DType::f32, {}), grouped, tied("z", {"y"}), make_parameter("empty", DType::f32, {0})}),
          {64, {"net."}}};
}

// With the checksum made right again, as a hostile writer would.
std::string sealed(std::string bytes) {
  const std::uint64_t checksum = hash_bytes(std::string_view(bytes).substr(0, bytes.size() - kChecksumBytes));
  std::memcpy(bytes.data() + bytes.size() - kChecksumBytes, &checksum, sizeof(checksum));
  return bytes;
}

Caught refusal(const std::string& bytes) {
  return caught([&] { (void)decode_layout(bytes); });
}

template <class T>
std::string with(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return sealed(bytes);
}

bool is_same(const Layout& a, const Layout& b) {
  return encode_layout(a) == encode_layout(b) && to_tsv(a.manifest()) == to_tsv(b.manifest()) && a.groups() == b.groups() &&
         a.order() == b.order() && a.gradient_bytes() == b.gradient_bytes() && a.layout_fingerprint() == b.layout_fingerprint();
}

}  // namespace

TEST_CASE("a decoded layout is the one that was encoded") {
  const Layout layout = small_layout();
  const Layout decoded = decode_layout(encode_layout(layout));
  CHECK(is_same(decoded, layout));
  CHECK(decoded.parameters()[1].group == "g");
  CHECK(decoded.groups() == std::vector<std::string>{"net.", ""});
  CHECK(decoded.placements()[1].bytes == 30);
  CHECK(decoded.buckets()[0].dtype == DType::f32);
}

TEST_CASE("every real table survives encoding") {
  for (const std::string& table : real_tables()) {
    CAPTURE(table);
    const Layout layout(load_tsv(table_path(table)), {});
    CHECK(is_same(decode_layout(encode_layout(layout)), layout));
  }
}

TEST_CASE("any layout survives encoding") {
  CHECK(rc::check([] {
    const Layout layout(any_manifest(), any_options());
    const Layout decoded = decode_layout(encode_layout(layout));
    RC_ASSERT(is_same(decoded, layout));
    for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
      const Placement& a = layout.placements()[i];
      const Placement& b = decoded.placements()[i];
      RC_ASSERT(std::tie(a.offset, a.bytes, a.bucket, a.group, a.position) == std::tie(b.offset, b.bytes, b.bucket, b.group, b.position));
    }
    for (std::size_t i = 0; i < layout.buckets().size(); ++i) {
      const Bucket& a = layout.buckets()[i];
      const Bucket& b = decoded.buckets()[i];
      RC_ASSERT(std::tie(a.first, a.parameters, a.group, a.dtype, a.offset, a.bytes) ==
                std::tie(b.first, b.parameters, b.group, b.dtype, b.offset, b.bytes));
    }
  }));
}

TEST_CASE("every changed byte is refused") {
  const std::string bytes = encode_layout(small_layout());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      CAPTURE(at);
      const Status status = refusal(changed).status;
      const bool is_version = at >= offsetof(LayoutHeader, version) && at < offsetof(LayoutHeader, groups);
      CHECK(status == (is_version ? Status::incompatible : Status::corrupt));
    }
  }
}

TEST_CASE("every truncation and every addition is refused") {
  const std::string bytes = encode_layout(small_layout());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(bytes.substr(0, size)).status == Status::corrupt);
  }
  CHECK(refusal(bytes + std::string(1, '\0')).status == Status::corrupt);
}

TEST_CASE("with a right checksum a changed byte is refused or still makes a layout that holds together") {
  const std::string bytes = encode_layout(small_layout());
  for (std::size_t at = sizeof(std::uint64_t) * 3; at < bytes.size() - kChecksumBytes; ++at) {
    for (int change = 1; change < 256; ++change) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      try {
        const Layout layout = decode_layout(sealed(changed));
        CHECK(is_same(decode_layout(encode_layout(layout)), layout));
      } catch (const Error& error) {
        CHECK(error.status() == Status::corrupt);
      }
    }
  }
}

TEST_CASE("with a right checksum and size every truncation is refused") {
  const std::string bytes = encode_layout(small_layout());
  for (std::size_t size = sizeof(LayoutHeader) + kChecksumBytes; size < bytes.size(); ++size) {
    const std::string cut = with(bytes.substr(0, size), offsetof(LayoutHeader, total_bytes), std::uint64_t{size});
    CHECK(refusal(cut).status == Status::corrupt);
  }
}

TEST_CASE("counts that the bytes cannot hold are refused before anything is reserved") {
  const std::string bytes = encode_layout(small_layout());
  for (const std::size_t at : {offsetof(LayoutHeader, labels), offsetof(LayoutHeader, parameters), offsetof(LayoutHeader, buckets),
                               offsetof(LayoutHeader, groups)}) {
    for (const std::uint32_t count : {0u, 1u, 5u, 1000u, 1u << 20, (1u << 20) + 1, UINT32_MAX}) {
      CAPTURE(at);
      CAPTURE(count);
      const Caught caught_here = refusal(with(bytes, at, count));
      // 1 of the 3 labels' two groups: the buckets then name a group that is not there.
      CHECK(caught_here.status == Status::corrupt);
    }
  }
}

TEST_CASE("each fault in the tables has its own sentence") {
  const Layout layout(make_manifest({make_parameter("a"), make_parameter("b")}), {});
  const std::string bytes = encode_layout(layout);
  const std::size_t first = sizeof(LayoutHeader) + sizeof(std::uint32_t);  // behind the one empty label
  const std::size_t second = first + sizeof(ParameterRecord) + sizeof(std::int64_t) + 1;
  const std::size_t bucket = second + sizeof(ParameterRecord) + sizeof(std::int64_t) + 1;
  const auto says = [&](std::size_t at, auto value, const char* text) {
    CAPTURE(text);
    const Caught fault = refusal(with(bytes, at, value));
    CAPTURE(fault.sentence);
    CHECK(fault.says(text));
  };
  says(0, std::uint64_t{1}, "magic");
  says(offsetof(LayoutHeader, version), 2u, "has version 2, this program reads version 1");
  says(offsetof(LayoutHeader, total_bytes), std::uint64_t{7}, "says that it has 7 bytes");
  says(offsetof(LayoutHeader, fingerprint), std::uint64_t{7}, "fingerprint");
  says(offsetof(LayoutHeader, gradient_bytes), std::uint64_t{64}, "do not end with the last bucket");
  says(offsetof(LayoutHeader, reserved), 1u, "belong to nothing");
  says(first + offsetof(ParameterRecord, id), std::uint64_t{7}, "is not the hash of its name");
  says(first + offsetof(ParameterRecord, offset), std::uint64_t{64}, "'a' does not follow");
  says(first + offsetof(ParameterRecord, bucket), 1u, "'a' is in no bucket");
  says(first + offsetof(ParameterRecord, position), 2u, "'a' is in no bucket");
  says(first + offsetof(ParameterRecord, position), 1u, "'b' is where another one is");
  says(first + offsetof(ParameterRecord, label), 1u, "impossible dimensions or group");
  says(first + offsetof(ParameterRecord, dims), std::uint8_t{17}, "impossible dimensions or group");
  says(first + offsetof(ParameterRecord, dims), std::uint8_t{2}, "");
  says(first + offsetof(ParameterRecord, dtype), std::uint8_t{0}, "unknown dtype code 0");
  says(first + offsetof(ParameterRecord, dtype), std::uint8_t{2}, "has not the dtype of its bucket");
  says(first + offsetof(ParameterRecord, order), std::uint8_t{1}, "order of parameter 'a' is impossible");
  says(first + offsetof(ParameterRecord, order), std::uint8_t{2}, "unknown order code 2");
  says(first + offsetof(ParameterRecord, reserved), std::uint8_t{1}, "reserved");
  says(first + sizeof(ParameterRecord), std::int64_t{-1}, "negative dimension -1");
  says(first + sizeof(ParameterRecord), std::int64_t{1} << 60, "2^62 bytes or more");
  says(first + sizeof(ParameterRecord), (std::int64_t{1} << 60) - 1, "'b' does not follow");
  says(second + sizeof(ParameterRecord) + sizeof(std::int64_t), 'a', "registered twice");
  says(bucket + offsetof(BucketRecord, offset), std::uint64_t{64}, "a bucket does not follow");
  says(bucket + offsetof(BucketRecord, bytes), std::uint64_t{64}, "does not end with its last parameter");
  says(bucket + offsetof(BucketRecord, parameters), 0u, "bucket 0 has no parameter");
  says(bucket + offsetof(BucketRecord, parameters), 1u, "fewer parameters");
  says(bucket + offsetof(BucketRecord, parameters), 3u, "more parameters");
  says(bucket + offsetof(BucketRecord, group), 1u, "no group");
}

TEST_CASE("arbitrary bytes are refused") {
  CHECK(rc::check([](const std::string& bytes) { RC_ASSERT(refusal(bytes).status == Status::corrupt); }));
}

TEST_CASE("100,000 parameters are written, read, placed, encoded, decoded and compared") {
  Manifest manifest;
  for (int i = 0; i < 100'000; ++i) {
    manifest.add(make_parameter("model.layers." + std::to_string(i) + ".self_attn.q_proj.weight", i % 3 == 0 ? DType::f16 : DType::f32, {i, 3}));
  }
  const Manifest parsed = parse_tsv(to_tsv(manifest), "memory");
  const Layout layout(parsed, {});
  const Layout decoded = decode_layout(encode_layout(layout));
  CHECK_NOTHROW(check_match(decoded.manifest(), manifest, false, "default"));
  CHECK(decoded.parameters().size() == 100'000);
}
