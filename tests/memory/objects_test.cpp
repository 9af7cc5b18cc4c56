#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/status.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"
#include "memory/slot.hpp"

using namespace gradshm::core;

namespace {

Layout small_layout() {
  Manifest manifest;
  for (const char* name : {"a", "b", "c"}) {
    Parameter parameter;
    parameter.name = name, parameter.shape = {5, 7};
    manifest.add(parameter);
  }
  return Layout(std::move(manifest), {.bucket_bytes = 256, .group_prefixes = {}});
}

ControlHeader header_for(const Layout& layout) {
  ControlHeader header;
  header.buckets = static_cast<std::uint32_t>(layout.buckets().size());
  header.groups = static_cast<std::uint32_t>(layout.groups().size());
  header.parameters = static_cast<std::uint32_t>(layout.parameters().size());
  return header;
}

// A sealed object with the same bytes, one of them changed.
MemFd damaged_copy(const std::byte* data, std::uint64_t bytes, std::uint64_t at, unsigned flip) {
  MemFd copy = MemFd::create("damaged", bytes);
  REQUIRE(pwrite(copy.fd(), data, bytes, 0) == static_cast<ssize_t>(bytes));
  const auto byte = static_cast<unsigned char>(static_cast<unsigned>(data[at]) ^ flip);
  REQUIRE(pwrite(copy.fd(), &byte, 1, static_cast<off_t>(at)) == 1);
  copy.seal(kSealShrink | kSealGrow | kSealFutureWrite | kSealSeal);
  return copy;
}

MemFd duplicate(const MemFd& file) { return MemFd(UniqueFd(dup(file.fd()))); }

}  // namespace

TEST_CASE("a control object opens as it was made, and read-only") {
  const Layout layout = small_layout();
  ControlObject made = create_control(header_for(layout), 42, layout.layout_fingerprint());
  made.view.words->closed_round = 7;
  const ControlObject opened = open_control(duplicate(made.file));
  CHECK(opened.view.header->object.incarnation == 42);
  CHECK(opened.view.header->buckets == layout.buckets().size());
  CHECK(opened.view.words->closed_round == 7);
}

TEST_CASE("every flipped byte of a control header is refused with an error") {
  const Layout layout = small_layout();
  const ControlObject made = create_control(header_for(layout), 42, layout.layout_fingerprint());
  for (std::uint64_t at = 0; at < sizeof(ControlHeader); ++at)
    CHECK_THROWS_AS(open_control(damaged_copy(made.mapping.data(), made.mapping.size(), at, 0x10)), Error);
}

TEST_CASE("a control object that is too short, too long, or without seals is refused") {
  const Layout layout = small_layout();
  const ControlObject made = create_control(header_for(layout), 42, layout.layout_fingerprint());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8}, sizeof(ControlHeader), made.mapping.size() - 4096}) {
    MemFd cut = MemFd::create("cut", bytes);
    REQUIRE(pwrite(cut.fd(), made.mapping.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    cut.seal(kSealShrink | kSealGrow | kSealFutureWrite | kSealSeal);
    CHECK_THROWS_AS(open_control(std::move(cut)), Error);
  }
  CHECK_THROWS_AS(open_control(damaged_copy(made.mapping.data(), made.mapping.size(), 0, 0xff)), Error);
  CHECK_THROWS_AS(open_control(MemFd::create("no seals", made.mapping.size())), Error);
}

TEST_CASE("another version of the shared structs is refused as incompatible, naming both") {
  const Layout layout = small_layout();
  ControlHeader header = header_for(layout);
  ControlObject made = create_control(header, 1, layout.layout_fingerprint());
  header = *made.view.header;
  header.object.abi_hash ^= 1;
  finish_header(header);
  std::memcpy(made.mapping.data(), &header, sizeof header);
  try {
    static_cast<void>(open_control(duplicate(made.file)));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.status() == Status::incompatible);
    CHECK(std::string(error.what()).find("this library has") != std::string::npos);
  }
}

TEST_CASE("a result object belongs to one layout and one incarnation") {
  const Layout layout = small_layout();
  const ResultObject made = create_result(layout, 42);
  made.gradients[3] = std::byte{9};
  const ResultObject opened = open_result(duplicate(made.file), layout, 42);
  CHECK(opened.gradients[3] == std::byte{9});
  CHECK_THROWS_AS(open_result(duplicate(made.file), layout, 43), Error);
  CHECK_THROWS_AS(open_result(duplicate(made.file), Layout(layout.manifest(), {}), 42), Error);
}

TEST_CASE("a slot is made without pages and admitted only when all of them are there") {
  const Layout layout = small_layout();
  const SlotShape shape = slot_shape(layout);
  const MemFd slot = create_slot(shape, 1, layout.layout_fingerprint(), 5, 2);
  CHECK_THROWS_AS(check_slot(slot, shape), Error);
  slot.allocate();
  CHECK_NOTHROW(check_slot(slot, shape));
  CHECK(ftruncate(slot.fd(), 1) == -1);
  CHECK(pwrite(slot.fd(), "x", 1, static_cast<off_t>(shape.gradients)) == 1);  // its worker may write
}

TEST_CASE("the parts of a slot do not overlap and are aligned") {
  const Layout layout = small_layout();
  const SlotShape shape = slot_shape(layout);
  REQUIRE(shape.blocks.size() == layout.buckets().size());
  std::uint64_t end = shape.words + sizeof(SlotWords);
  for (std::size_t bucket = 0; bucket < shape.blocks.size(); ++bucket) {
    CHECK(shape.blocks[bucket] >= end);
    CHECK(shape.blocks[bucket] % kLineBytes == 0);
    end = shape.blocks[bucket] + sizeof(CommitBlock) + 8 * presence_words(layout.buckets()[bucket].parameters);
  }
  CHECK(shape.gradients >= end);
  CHECK(shape.gradients % kPageBytes == 0);
  CHECK(shape.total >= shape.gradients + layout.gradient_bytes());
}

TEST_CASE("a layout whose parameters are all empty still gives objects that can be mapped") {
  Manifest manifest;
  Parameter parameter;
  parameter.name = "empty", parameter.shape = {0, 4};
  manifest.add(parameter);
  const Layout layout(std::move(manifest), {});
  CHECK(layout.gradient_bytes() == 0);
  CHECK(create_result(layout, 1).mapping.size() > 0);
  CHECK(slot_shape(layout).total > 0);
}
