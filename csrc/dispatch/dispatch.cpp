#include "dispatch/dispatch.h"

#include <algorithm>
#include <atomic>

#include "dispatch/cpu_features.h"

namespace pinfeed::dispatch {
namespace {

bool always() { return true; }

constexpr Isa kIsas[] = {
#if defined(__x86_64__)
    {"avx512", cpu_has_avx512, &kernels::kResizeAvx512, &kernels::kPermuteAvx2,
     &kernels::kCastAvx2},
    {"avx2", cpu_has_avx2, &kernels::kResizeAvx2, &kernels::kPermuteAvx2, &kernels::kCastAvx2},
#elif defined(__aarch64__)
    {"neon", always, &kernels::kResizeNeon, &kernels::kPermuteNeon, &kernels::kCastScalar},
#endif
    {"scalar", always, &kernels::kResizeScalar, &kernels::kPermuteScalar, &kernels::kCastScalar},
};

std::atomic<const Isa*>& active() {
  static std::atomic<const Isa*> isa =
      std::ranges::find_if(kIsas, [](const Isa& best) { return best.supported(); });
  return isa;
}

}  // namespace

std::span<const Isa> compiled_isas() { return kIsas; }

const Isa& active_isa() { return *active().load(std::memory_order_relaxed); }

bool force_isa(std::string_view name) {
  for (const Isa& isa : kIsas) {
    if (isa.name == name && isa.supported()) {
      active().store(&isa, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace pinfeed::dispatch
