// The DLPack 1.x structures, in the layout of their specification
// (https://dmlc.github.io/dlpack/latest/c_api.html), with our own names. Only the CPU side and the
// exchange table are complete.
#pragma once

#include <cstdint>

namespace pinfeed::bindings::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCudaHost = 3;  // pinned: the CPU reads and writes it too

enum class TypeCode : std::uint8_t {
  signed_int = 0,
  unsigned_int = 1,
  floating = 2,
  bfloat = 4,
  complex = 5,
  boolean = 6,
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t axes;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in items
  std::uint64_t byte_offset;

  bool on_cpu() const { return device.type == kCpu || device.type == kCudaHost; }
};

struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

// The table at type(tensor).__dlpack_c_exchange_api__. Functions return 0, or -1 with a Python
// exception set.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* allocate;
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*managed_to_object)(ManagedTensor* tensor, void** out_object);
  int (*tensor_from_object)(void* object, Tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

}  // namespace pinfeed::bindings::dlpack
