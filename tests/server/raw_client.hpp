// A client that speaks to a server's socket without the library, and need not keep to the rules.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "protocol/wire.hpp"
#include "server/workers.hpp"

namespace gradshm::test {

inline core::UniqueFd pidfd_of(pid_t pid) { return core::UniqueFd(static_cast<int>(syscall(434 /* pidfd_open */, pid, 0))); }

class RawClient {
 public:
  explicit RawClient(const std::string& name) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = std::string(std::getenv("GRADSHM_DIR")) + "/" + name + "/sock";
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    REQUIRE(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }

  bool send(const void* bytes, std::size_t count, std::vector<int> fds = {}) { return core::send_packet(socket_.get(), bytes, count, fds); }
  bool send(const std::string& bytes, std::vector<int> fds = {}) { return send(bytes.data(), bytes.size(), std::move(fds)); }
  template <class Message>
  bool send(const Message& message, std::vector<int> fds = {}) {
    return core::send_message(socket_.get(), message, fds);
  }

  // The next answer. Throws core::Error: what it says, or daemon_lost if the server has hung up.
  core::Packet receive() { return core::await_packet(socket_.get(), core::Deadline::after(kLongNs)); }

  bool hello() {
    core::Hello message;
    message.abi_hash = core::abi_hash();
    return send(message, {pidfd_of(getpid()).get()}) && receive().type == core::MessageType::hello_ok;
  }
  // True if the server took it; its slot is then in slot().
  bool join(const core::MemFd& manifest, int rank = -1) {
    core::Join message;
    message.rank = rank;
    if (!send(message, {manifest.fd()})) return false;
    core::Packet reply = receive();
    if (reply.type != core::MessageType::join_ok) return false;
    slot_ = core::MemFd(std::move(reply.fds[3]));
    return true;
  }
  bool command(core::CommandKind kind, std::uint32_t value = 0) {
    core::Command message;
    message.kind = static_cast<std::uint32_t>(kind), message.value = value;
    return send(message);
  }
  // Code of the error that is the next answer; 0 if it is another answer.
  int refusal() { return code_of(receive()); }
  // Code of the last error that came before the server hung up; 0 if it hung up in silence.
  int verdict() {
    int code = 0;
    try {
      while (true) code = code_of(receive());
    } catch (const core::Error& error) {
      CHECK(error.status() == core::Status::daemon_lost);
    }
    return code;
  }
  [[nodiscard]] const core::MemFd& slot() const { return slot_; }
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  static int code_of(const core::Packet& packet) {
    return packet.type == core::MessageType::error ? core::parse<core::ErrorReply>(packet).code : 0;
  }
  core::UniqueFd socket_;
  core::MemFd slot_;
};

// As floats() of workers.hpp, but as the server computes it.
inline core::Layout core_floats(std::size_t parameters, std::int64_t numel, std::uint64_t bucket_bytes) {
  core::Manifest manifest;
  for (std::size_t i = 0; i < parameters; ++i) {
    core::Parameter parameter;
    parameter.name = "p" + std::to_string(i), parameter.shape = {numel};
    manifest.add(std::move(parameter));
  }
  core::LayoutOptions options;
  options.bucket_bytes = bucket_bytes;
  return {std::move(manifest), options};
}
inline core::MemFd good_manifest(std::size_t parameters = 2) {
  return core::MemFd::sealed_copy("manifest", core::encode_layout(core_floats(parameters, 4, core::kDefaultBucketBytes)));
}

// Two workers that must be able to do an exact round after every attack.
struct Victims : Team {
  Victims() : Team(floats(2), summing(2)) {}
  void check_unharmed() { check_exact_round({&workers[0], &workers[1]}); }
};

}  // namespace gradshm::test
