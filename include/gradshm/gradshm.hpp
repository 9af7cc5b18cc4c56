// gradshm for C++20: header-only RAII over the C ABI in gradshm.h, which documents lifetimes and thread rules.
// Set-up throws gradshm::Error (a std::system_error whose what() is a whole sentence); commit, poll and wait return values.
#pragma once

#if __cplusplus < 202002L
#error "gradshm.hpp needs C++20: compile with -std=c++20, or use the C API in gradshm.h"
#endif

#include <gradshm/gradshm.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradshm {

enum class DType : int { f32 = GRADSHM_F32, f64 = GRADSHM_F64, f16 = GRADSHM_F16, bf16 = GRADSHM_BF16 };
enum class Presence : int { all = GRADSHM_PRESENT_ALL, marked = GRADSHM_PRESENT_MARKED, none = GRADSHM_PRESENT_NONE };

// What commit, poll and wait answer; the values are the GRADSHM_* codes.
enum class [[nodiscard]] Outcome : int {
  ok = GRADSHM_OK,
  empty = GRADSHM_EMPTY,
  timeout = GRADSHM_TIMEOUT,
  evicted = GRADSHM_EVICTED,
  daemon_lost = GRADSHM_DAEMON_LOST,
  already_committed = GRADSHM_ALREADY_COMMITTED,
  not_committed = GRADSHM_NOT_COMMITTED,
  round_closed = GRADSHM_ROUND_CLOSED,
  not_closed = GRADSHM_NOT_CLOSED,
  not_member = GRADSHM_NOT_MEMBER,
  invalid = GRADSHM_INVALID,
  forked = GRADSHM_FORKED,
  layout_mismatch = GRADSHM_LAYOUT_MISMATCH,
  incompatible = GRADSHM_INCOMPATIBLE,
  no_space = GRADSHM_NO_SPACE,
  internal = GRADSHM_INTERNAL,
};
[[nodiscard]] inline const char* to_string(Outcome outcome) noexcept { return gradshm_strerror(static_cast<int>(outcome)); }

inline const std::error_category& category() noexcept {
  static const struct : std::error_category {
    const char* name() const noexcept override { return "gradshm"; }
    std::string message(int code) const override { return gradshm_strerror(code); }
  } instance;
  return instance;
}

class Error : public std::system_error {
 public:
  explicit Error(int code) : Error(code, gradshm_last_error()) {}
  Error(int code, std::string sentence) : std::system_error(code, category()), sentence_(std::move(sentence)) {}
  [[nodiscard]] const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  std::string sentence_;
};

namespace detail {
inline void check(int code) {
  if (code != GRADSHM_OK) throw Error(code);
}
inline std::int64_t nanoseconds(std::optional<std::chrono::nanoseconds> timeout) { return timeout ? timeout->count() : -1; }
template <class Struct>
Struct sized() {
  Struct value{};
  value.size = sizeof(Struct);
  return value;
}
// f16 and bf16 are handed out as std::uint16_t bit patterns.
template <class T>
constexpr bool element_type_fits(int dtype) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, std::byte>) return true;
  if constexpr (std::is_same_v<std::remove_const_t<T>, float>) return dtype == GRADSHM_F32;
  if constexpr (std::is_same_v<std::remove_const_t<T>, double>) return dtype == GRADSHM_F64;
  if constexpr (std::is_same_v<std::remove_const_t<T>, std::uint16_t>) return dtype == GRADSHM_F16 || dtype == GRADSHM_BF16;
  return false;
}
}  // namespace detail

// The parameters that a worker registers.
class Layout {
 public:
  Layout() {
    gradshm_layout_t* layout = nullptr;
    detail::check(gradshm_layout_create(&layout));
    layout_.reset(layout);
  }
  static Layout from_tsv(const std::string& path) { return Layout(&gradshm_layout_from_tsv, path); }
  static Layout from_safetensors(const std::string& path) { return Layout(&gradshm_layout_from_safetensors, path); }

  struct Extra {
    std::string group = {};
    std::vector<std::string> aliases = {};
    bool column_major = false;
  };
  Layout& add(const std::string& name, DType dtype, std::span<const std::int64_t> shape, const Extra& extra) {
    std::vector<const char*> aliases;
    for (const std::string& alias : extra.aliases) aliases.push_back(alias.c_str());
    auto desc = detail::sized<gradshm_parameter_desc_t>();
    desc.name = name.c_str();
    desc.dtype = static_cast<int>(dtype);
    desc.order = extra.column_major ? GRADSHM_ORDER_F : GRADSHM_ORDER_C;
    desc.ndim = shape.size();
    desc.shape = shape.data();
    desc.group = extra.group.c_str();
    desc.aliases = aliases.data();
    desc.alias_count = aliases.size();
    detail::check(gradshm_layout_add_parameter(layout_.get(), &desc));
    return *this;
  }
  Layout& add(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape) {
    return add(name, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()), Extra{});
  }
  Layout& add(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape, const Extra& extra) {
    return add(name, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()), extra);
  }

  [[nodiscard]] std::size_t size() const {
    std::size_t parameters = 0;
    detail::check(gradshm_layout_size(layout_.get(), &parameters));
    return parameters;
  }
  [[nodiscard]] std::uint64_t fingerprint() const {
    std::uint64_t value = 0;
    detail::check(gradshm_layout_fingerprint(layout_.get(), &value));
    return value;
  }
  [[nodiscard]] const gradshm_layout_t* get() const noexcept { return layout_.get(); }

 private:
  template <class Load>
  Layout(Load load, const std::string& path) {
    gradshm_layout_t* layout = nullptr;
    detail::check(load(path.c_str(), &layout));
    layout_.reset(layout);
  }
  struct Destroy {
    void operator()(gradshm_layout_t* layout) const noexcept { gradshm_layout_destroy(layout); }
  };
  std::unique_ptr<gradshm_layout_t, Destroy> layout_;
};

// What workers and observers share: the instance's parameters, its result and its rounds.
class Handle {
 public:
  [[nodiscard]] gradshm_info_t info() const {
    auto info = detail::sized<gradshm_info_t>();
    detail::check(gradshm_info(handle_.get(), &info));
    return info;
  }
  [[nodiscard]] std::size_t size() const { return info().parameters; }
  [[nodiscard]] std::size_t find(const std::string& name) const {
    std::size_t index = 0;
    detail::check(gradshm_find(handle_.get(), name.c_str(), &index));
    return index;
  }
  [[nodiscard]] std::size_t find_group(const std::string& name) const {
    std::size_t index = 0;
    detail::check(gradshm_find_group(handle_.get(), name.c_str(), &index));
    return index;
  }
  [[nodiscard]] gradshm_parameter_t parameter(std::size_t index) const {
    auto parameter = detail::sized<gradshm_parameter_t>();
    detail::check(gradshm_parameter(handle_.get(), index, &parameter));
    return parameter;
  }
  [[nodiscard]] gradshm_parameter_t parameter(const std::string& name) const { return parameter(find(name)); }
  [[nodiscard]] gradshm_bucket_t bucket(std::size_t index) const {
    auto bucket = detail::sized<gradshm_bucket_t>();
    detail::check(gradshm_bucket(handle_.get(), index, &bucket));
    return bucket;
  }

  // Read-only view, no copy. T: float, double, std::uint16_t (f16, bf16 bits) or std::byte; another type than the parameter's throws.
  template <class T>
  [[nodiscard]] std::span<const T> result(std::size_t index) const {
    const void* data = nullptr;
    const auto described = typed<T>(index);
    detail::check(gradshm_result(handle_.get(), index, &data));
    return {static_cast<const T*>(data), described.bytes / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<const T> result(const std::string& name) const {
    return result<T>(find(name));
  }
  [[nodiscard]] gradshm_result_info_t result_info(std::size_t index) const {
    auto info = detail::sized<gradshm_result_info_t>();
    detail::check(gradshm_result_info(handle_.get(), index, &info));
    return info;
  }
  [[nodiscard]] gradshm_result_info_t result_info(const std::string& name) const { return result_info(find(name)); }
  [[nodiscard]] gradshm_round_t round(std::uint64_t number) const {
    auto info = detail::sized<gradshm_round_t>();
    detail::check(gradshm_round(handle_.get(), number, &info));
    return info;
  }
  [[nodiscard]] double round_group_weight(std::uint64_t number, std::size_t group) const {
    double weight = 0;
    detail::check(gradshm_round_group_weight(handle_.get(), number, group, &weight));
    return weight;
  }
  // A copy of one parameter out of one closed round, never a mixture of two.
  gradshm_result_info_t read(std::size_t index, void* data, std::size_t bytes,
                             std::optional<std::chrono::nanoseconds> timeout = std::chrono::seconds(1)) {
    auto info = detail::sized<gradshm_result_info_t>();
    detail::check(gradshm_read(handle_.get(), index, data, bytes, detail::nanoseconds(timeout), &info));
    return info;
  }
  [[nodiscard]] gradshm_handle_t* get() const noexcept { return handle_.get(); }

 protected:
  explicit Handle(gradshm_handle_t* handle) : handle_(handle) {}
  template <class T>
  [[nodiscard]] gradshm_parameter_t typed(std::size_t index) const {
    const auto described = parameter(index);
    if (!detail::element_type_fits<T>(described.dtype))
      throw Error(GRADSHM_INVALID, std::string("parameter '") + described.name + "' holds " + gradshm_dtype_name(described.dtype) +
                                       " elements, not the type asked for");
    return described;
  }

 private:
  struct Detach {
    void operator()(gradshm_handle_t* handle) const noexcept { gradshm_detach(handle); }
  };
  std::unique_ptr<gradshm_handle_t, Detach> handle_;
};

class Observer : public Handle {
 public:
  static Observer observe(const std::string& instance, std::optional<std::chrono::nanoseconds> timeout = std::chrono::seconds(10)) {
    gradshm_handle_t* handle = nullptr;
    detail::check(gradshm_observe(instance.empty() ? nullptr : instance.c_str(), detail::nanoseconds(timeout), &handle));
    return Observer(handle);
  }
  Outcome wait(std::uint64_t round, std::optional<std::chrono::nanoseconds> timeout = std::nullopt) noexcept {
    return static_cast<Outcome>(gradshm_wait(get(), round, detail::nanoseconds(timeout)));
  }

 private:
  using Handle::Handle;
};

// A round this worker has committed to. Borrows the worker.
class Round {
 public:
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  // Of the commit. wait and poll return it too where nothing is committed: it is neither ok nor already_committed.
  Outcome status() const noexcept { return status_; }
  // nullopt: no deadline.
  Outcome wait(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const noexcept {
    return is_committed() ? static_cast<Outcome>(gradshm_wait(handle_, number_, detail::nanoseconds(timeout))) : status_;
  }
  Outcome poll() const noexcept { return is_committed() ? static_cast<Outcome>(gradshm_poll(handle_, number_)) : status_; }

 private:
  friend class Worker;
  Round(gradshm_handle_t* handle, std::uint64_t number, Outcome status) : handle_(handle), number_(number), status_(status) {}
  [[nodiscard]] bool is_committed() const noexcept { return status_ == Outcome::ok || status_ == Outcome::already_committed; }
  gradshm_handle_t* handle_;
  std::uint64_t number_;
  Outcome status_;
};

struct AttachOptions {
  int rank = GRADSHM_RANK_AUTO;
  bool partial = false;             // the layout may name fewer parameters than the instance has
  bool ready = true;                // false: take part only after ready()
  bool wait_for_server = false;     // no server yet: try again until the time-out
  bool wait_for_admission = true;   // false: return before this worker is a member; see wait_admitted
  std::optional<std::chrono::nanoseconds> timeout = std::chrono::seconds(60);
  std::optional<std::chrono::nanoseconds> spin = std::nullopt;  // how long a wait spins; nullopt: by the number of CPUs
  std::string label = {};
};

struct CommitOptions {
  double weight = 0;           // 0: as this group's first commit of the round said, else 1
  Presence presence = Presence::all;
  std::uint64_t round = 0;     // 0: the open one
};

class Worker : public Handle {
 public:
  // instance "": the environment's GRADSHM_INSTANCE (gradshm run sets it), else "default".
  static Worker attach(const std::string& instance, const Layout& layout, const AttachOptions& options = {}) {
    auto raw = detail::sized<gradshm_attach_options_t>();
    raw.rank = options.rank;
    if (options.partial) raw.flags |= GRADSHM_ATTACH_PARTIAL;
    if (!options.ready) raw.flags |= GRADSHM_ATTACH_NOT_READY;
    if (options.wait_for_server) raw.flags |= GRADSHM_ATTACH_WAIT_SERVER;
    if (!options.wait_for_admission) raw.flags |= GRADSHM_ATTACH_NO_WAIT;
    raw.timeout_ns = detail::nanoseconds(options.timeout);
    if (raw.timeout_ns == 0) raw.timeout_ns = 1;
    raw.spin_ns = !options.spin ? 0 : options.spin->count() > 0 ? options.spin->count() : -1;
    raw.label = options.label.empty() ? nullptr : options.label.c_str();
    gradshm_handle_t* handle = nullptr;
    detail::check(gradshm_attach(instance.empty() ? nullptr : instance.c_str(), layout.get(), &raw, &handle));
    return Worker(handle);
  }

  [[nodiscard]] int rank() const { return info().rank; }
  void ready() { detail::check(gradshm_ready(get())); }
  void pause() { detail::check(gradshm_pause(get())); }
  void resume() { detail::check(gradshm_resume(get())); }
  void leave() { detail::check(gradshm_leave(get())); }
  // The first round this worker takes part in.
  std::uint64_t wait_admitted(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) {
    std::uint64_t round = 0;
    detail::check(gradshm_wait_admitted(get(), detail::nanoseconds(timeout), &round));
    return round;
  }

  // This worker's memory of a parameter, to be written in place; the address stays until the worker is destroyed.
  template <class T>
  [[nodiscard]] std::span<T> slot(std::size_t index) const {
    void* data = nullptr;
    const auto described = typed<T>(index);
    detail::check(gradshm_slot(get(), index, &data));
    return {static_cast<T*>(data), described.bytes / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<T> slot(const std::string& name) const {
    return slot<T>(find(name));
  }

  Round commit(const CommitOptions& options = {}) noexcept { return commit_scope(GRADSHM_ALL, 0, options); }
  Round commit_group(std::size_t group, const CommitOptions& options = {}) noexcept { return commit_scope(GRADSHM_GROUP, group, options); }
  Round commit_bucket(std::size_t bucket, const CommitOptions& options = {}) noexcept {
    return commit_scope(GRADSHM_BUCKET, bucket, options);
  }
  Round commit_parameter(std::size_t parameter, const CommitOptions& options = {}) noexcept {
    return commit_scope(GRADSHM_PARAMETER, parameter, options);
  }
  Round abstain() noexcept { return commit({.presence = Presence::none}); }
  // round 0: the one last committed to.
  Outcome wait(std::uint64_t round = 0, std::optional<std::chrono::nanoseconds> timeout = std::nullopt) noexcept {
    return static_cast<Outcome>(gradshm_wait(get(), round, detail::nanoseconds(timeout)));
  }

 private:
  using Handle::Handle;
  Round commit_scope(int scope, std::size_t index, const CommitOptions& options) noexcept {
    auto raw = detail::sized<gradshm_commit_options_t>();
    raw.round = options.round;
    raw.weight = options.weight;
    raw.presence = static_cast<std::int32_t>(options.presence);
    std::uint64_t round = 0;
    const int code = gradshm_commit(get(), scope, index, &raw, &round);
    return Round(get(), round, static_cast<Outcome>(code));
  }
};

}  // namespace gradshm
