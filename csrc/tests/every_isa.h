// Runs a test on every instruction set that this build has and this CPU can run.
#pragma once

#include <string>

#include "dispatch/dispatch.h"
#include "tests/check.h"

namespace pinfeed::tests {

template <class Test>
void run_on_isas(const char* name, const Test& test) {
  for (const dispatch::Isa& isa : dispatch::compiled_isas()) {
    const std::string full = std::string(name) + " on " + std::string(isa.name);
    run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
  }
}

}  // namespace pinfeed::tests
