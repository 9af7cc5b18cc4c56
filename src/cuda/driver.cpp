#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace gradshm::core::cuda {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

const char* library_path() {
#ifdef GRADSHM_TEST_DRIVER
  if (const char* const path = std::getenv("GRADSHM_CUDA_DRIVER"); path != nullptr && *path != '\0') return path;
#endif
  return "libcuda.so.1";
}

// Never closed: the driver has threads of its own.
void* open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(Status::unsupported, std::string("no CUDA driver: ") + dlerror() + "; install NVIDIA's driver, or use host memory");
  return library;
}

GetProcAddress entry_point(void* library, const char* path) {
  // The unversioned symbol of the library is that of an older interface.
  void* const symbol = dlsym(library, "cuGetProcAddress_v2");
  if (symbol == nullptr)
    throw Error(Status::unsupported, std::string(path) + " has no cuGetProcAddress_v2: it is older than CUDA 12.0; install a driver of version 525 or newer");
  return reinterpret_cast<GetProcAddress>(symbol);
}

template <class Function>
void find(GetProcAddress get, const char* path, const char* name, Function& ret_function) {
  void* symbol = nullptr;
  CUdriverProcAddressQueryResult found{};
  const CUresult code = get(name, &symbol, kApiVersion, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  if (code != CUDA_SUCCESS || symbol == nullptr)
    throw Error(Status::unsupported, std::string(path) + " lacks " + name + " (code " + std::to_string(static_cast<int>(code)) + "): install a driver of version 525 or newer");
  ret_function = reinterpret_cast<Function>(symbol);
}

std::string words(const Driver& table, const char* call, CUresult code) {
  const char *name = nullptr, *text = nullptr;
  if (table.error_name != nullptr) static_cast<void>(table.error_name(code, &name));
  if (table.error_string != nullptr) static_cast<void>(table.error_string(code, &text));
  std::string out = std::string(call) + ": " + (name != nullptr ? name : "unknown code") + " (" + std::to_string(static_cast<int>(code));
  if (text != nullptr) out += std::string(", ") + text;
  return out + ")";
}

void initialise(Driver& table, const char* path) {
  const CUresult code = table.init(0);
  if (code == CUDA_ERROR_STUB_LIBRARY)
    throw Error(Status::unsupported, std::string(path) + " is the toolkit's stub, not a driver: take its directory out of LD_LIBRARY_PATH");
  if (code != CUDA_SUCCESS) throw Error(Status::unsupported, "the CUDA driver does not start: " + words(table, "cuInit", code));
  if (const CUresult asked = table.driver_version(&table.version); asked != CUDA_SUCCESS)
    throw Error(Status::unsupported, words(table, "cuDriverGetVersion", asked));
  if (table.version < kApiVersion)
    throw Error(Status::unsupported, std::string(path) + " is of CUDA " + std::to_string(table.version / 1000) + "." + std::to_string(table.version % 1000 / 10) +
                                         "; gradshm needs 12.0: install a driver of version 525 or newer");
}

Driver load() {
  const char* const path = library_path();
  const GetProcAddress get = entry_point(open_library(path), path);
  Driver table;
#define GRADSHM_CUDA_FIND(member, name) find(get, path, #name, table.member);
  GRADSHM_CUDA_ENTRIES(GRADSHM_CUDA_FIND)
#undef GRADSHM_CUDA_FIND
  initialise(table, path);
  return table;
}

}  // namespace

const Driver& driver() {
  static const Driver table = load();  // a throw leaves it for the next call to try
  return table;
}

std::string describe(const char* call, CUresult code) { return words(driver(), call, code); }

Error driver_error(const std::string& what, const char* call, CUresult code) {
  return {code == CUDA_ERROR_OUT_OF_MEMORY ? Status::no_space : Status::system, what + ": " + describe(call, code)};
}

}  // namespace gradshm::core::cuda
