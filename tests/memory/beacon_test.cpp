#include "memory/beacon.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "memory/rundir.hpp"

using namespace gradshm::core;

namespace {

const std::string kName = "beacon-test-" + std::to_string(getpid());

BeaconData data_named(const std::string& name) {
  BeaconData data;
  data.pid = getpid(), data.pid_start = pid_start_time(getpid());
  data.uid = geteuid();
  std::strncpy(data.name, name.c_str(), sizeof data.name - 1);
  std::strncpy(data.socket_path, socket_path(name).c_str(), sizeof data.socket_path - 1);
  return data;
}

std::string path() { return "/dev/shm/" + beacon_name(getuid(), kName); }

}  // namespace

TEST_CASE("a beacon is found by name, shows updates, and is gone after remove") {
  Beacon beacon(kName, data_named(kName));
  BeaconData data = data_named(kName);
  data.closed_round = 12;
  beacon.update(data);
  const auto found = read_beacon(getuid(), kName);
  REQUIRE(found.has_value());
  CHECK(found->closed_round == 12);
  CHECK(is_alive(*found));
  const auto all = list_beacons(getuid());
  CHECK(std::count_if(all.begin(), all.end(), [](const BeaconData& one) { return kName == one.name; }) == 1);
  beacon.remove();
  CHECK_FALSE(read_beacon(getuid(), kName).has_value());
}

TEST_CASE("a new server's beacon replaces what a killed one left, also a half-made one") {
  Beacon first(kName, data_named(kName));
  close(open(("/dev/shm/new-" + beacon_name(getuid(), kName)).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  BeaconData data = data_named(kName);
  data.incarnation = 2;
  Beacon second(kName, data);
  CHECK(read_beacon(getuid(), kName)->incarnation == 2);
  second.remove();
  CHECK(access(("/dev/shm/new-" + beacon_name(getuid(), kName)).c_str(), F_OK) == -1);
}

TEST_CASE("servers of one name in two directories have two beacons, and none removes the other's") {
  Beacon here(kName, data_named(kName));
  setenv("GRADSHM_DIR", "/tmp/elsewhere", 1);
  BeaconData data = data_named(kName);
  data.incarnation = 9;
  Beacon there(kName, data);
  CHECK(read_beacon(geteuid(), kName)->incarnation == 9);
  CHECK(list_beacons(geteuid()).size() >= 2);
  unsetenv("GRADSHM_DIR");
  CHECK(read_beacon(geteuid(), kName)->incarnation == 0);
  here.remove();
  CHECK_FALSE(read_beacon(geteuid(), kName).has_value());
  setenv("GRADSHM_DIR", "/tmp/elsewhere", 1);
  CHECK(read_beacon(geteuid(), kName).has_value());
  data.incarnation = 8;
  CHECK_FALSE(remove_beacon(data));  // another server's by now
  data.incarnation = 9;
  CHECK(remove_beacon(data));
  CHECK_FALSE(read_beacon(geteuid(), kName).has_value());
  unsetenv("GRADSHM_DIR");
}

TEST_CASE("a damaged, short or foreign file under a beacon's name is no beacon") {
  Beacon beacon(kName, data_named(kName));
  for (std::size_t at = 0; at < sizeof(BeaconData); at += 7) {
    const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    REQUIRE(pread(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    byte = static_cast<char>(byte ^ 0x20);
    REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    CHECK_FALSE(read_beacon(getuid(), kName).has_value());
    byte = static_cast<char>(byte ^ 0x20);
    REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    close(fd);
  }
  CHECK(read_beacon(getuid(), kName).has_value());
  CHECK(truncate(path().c_str(), 100) == 0);
  CHECK_FALSE(read_beacon(getuid(), kName).has_value());
  CHECK(unlink(path().c_str()) == 0);  // remove() leaves what it cannot read
}

TEST_CASE("a process is known again by its start time, so a re-used pid is not taken for it") {
  BeaconData data = data_named(kName);
  CHECK(is_alive(data));
  data.pid_start += 1;
  CHECK_FALSE(is_alive(data));
  CHECK(pid_start_time(1 << 30) == 0);
}
