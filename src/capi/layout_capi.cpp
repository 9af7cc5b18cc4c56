// Names, codes and layouts of the C ABI.
#include "base/text.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/structs.hpp"
#include "layout/dtype.hpp"
#include "layout/layout.hpp"

using namespace gradshm::core;

namespace {

DType checked_dtype(int code, const std::string& name) {
  if (const auto dtype = dtype_of_code(code)) return *dtype;
  throw Error(Status::invalid, "parameter '" + escape(name) + "': dtype code " + std::to_string(code) + " is none of GRADSHM_F32, F64, F16, BF16");
}

Parameter parameter_of(const gradshm_parameter_desc_t& desc) {
  require(desc.name, "desc.name");
  Parameter parameter;
  parameter.name = desc.name;
  parameter.dtype = checked_dtype(desc.dtype, parameter.name);
  if (desc.order != GRADSHM_ORDER_C && desc.order != GRADSHM_ORDER_F)
    throw Error(Status::invalid, "parameter '" + escape(parameter.name) + "': order takes GRADSHM_ORDER_C or GRADSHM_ORDER_F");
  parameter.order = static_cast<Order>(desc.order);
  if (desc.ndim > kMaxDims) throw Error(Status::invalid, "parameter '" + escape(parameter.name) + "' has " + std::to_string(desc.ndim) + " dimensions; at most 16 are taken");
  if (desc.ndim > 0) require(desc.shape, "desc.shape");
  parameter.shape.assign(desc.shape, desc.shape + desc.ndim);
  if (desc.group != nullptr) parameter.group = desc.group;
  if (desc.alias_count > 0) require(desc.aliases, "desc.aliases");
  for (std::size_t i = 0; i < desc.alias_count; ++i) {
    require(desc.aliases[i], "desc.aliases[i]");
    parameter.aliases.emplace_back(desc.aliases[i]);
  }
  return parameter;
}

int load(const char* path, gradshm_layout_t** ret_layout, Manifest (*loader)(const std::string&)) {
  return guard([&] {
    require(path, "path"), require(ret_layout, "ret_layout");
    *ret_layout = new gradshm_layout{loader(path)};
  });
}

}  // namespace

extern "C" {

const char* gradshm_version(void) { return GRADSHM_VERSION_TEXT; }
const char* gradshm_strerror(int code) { return status_text(code); }
const char* gradshm_last_error(void) { return last_error().c_str(); }

const char* gradshm_dtype_name(int code) {
  const auto dtype = dtype_of_code(code);
  return dtype ? dtype_name(*dtype) : "?";
}

size_t gradshm_dtype_size(int code) {
  const auto dtype = dtype_of_code(code);
  return dtype ? element_bytes(*dtype) : 0;
}

uint64_t gradshm_parameter_id(const char* name) { return name == nullptr ? 0 : parameter_id(name); }

int gradshm_layout_create(gradshm_layout_t** ret_layout) {
  return guard([&] {
    require(ret_layout, "ret_layout");
    *ret_layout = new gradshm_layout{Manifest()};
  });
}

int gradshm_layout_from_tsv(const char* path, gradshm_layout_t** ret_layout) { return load(path, ret_layout, load_tsv); }
int gradshm_layout_from_safetensors(const char* path, gradshm_layout_t** ret_layout) { return load(path, ret_layout, load_safetensors); }

int gradshm_layout_add_parameter(gradshm_layout_t* layout, const gradshm_parameter_desc_t* desc) {
  return guard([&] {
    require(layout, "layout"), require(desc, "desc");
    layout->manifest.add(parameter_of(read_struct(desc, "gradshm_parameter_desc_t")));
  });
}

int gradshm_layout_add(gradshm_layout_t* layout, const char* name, int dtype, const int64_t* shape, size_t ndim) {
  gradshm_parameter_desc_t desc{};
  desc.size = sizeof desc;
  desc.name = name, desc.dtype = dtype, desc.shape = shape, desc.ndim = ndim;
  return gradshm_layout_add_parameter(layout, &desc);
}

int gradshm_layout_size(const gradshm_layout_t* layout, size_t* ret_parameters) {
  return guard([&] {
    require(layout, "layout"), require(ret_parameters, "ret_parameters");
    *ret_parameters = layout->manifest.size();
  });
}

int gradshm_layout_fingerprint(const gradshm_layout_t* layout, uint64_t* ret_fingerprint) {
  return guard([&] {
    require(layout, "layout"), require(ret_fingerprint, "ret_fingerprint");
    *ret_fingerprint = fingerprint(layout->manifest);
  });
}

void gradshm_layout_destroy(gradshm_layout_t* layout) { delete layout; }

}  // extern "C"
