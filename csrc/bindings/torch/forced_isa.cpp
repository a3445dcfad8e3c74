// The library's own table of kernels, for tests: like the Python module, it has its own copy
// of the core, and pinfeed.testing.use_isa forces both.
#include "dispatch/dispatch.h"

extern "C" __attribute__((visibility("default"))) bool pinfeed_ops_force_isa(const char* name) {
  return pinfeed::dispatch::force_isa(name);
}
