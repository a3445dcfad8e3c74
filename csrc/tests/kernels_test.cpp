// The kernels, on every instruction set that this build has and this CPU can run.
#include "tests/check.h"

using Tests = void();
Tests cast_tests, color_tests, copy_tests, fill_tests, image_tests, layout_tests, pack_tests,
    pad_tests, permutation_tests, resize_tests, row_plan_tests, weighted_tests;

int main() {
  for (Tests* const tests :
       {cast_tests, color_tests, copy_tests, fill_tests, image_tests, layout_tests, pack_tests,
        pad_tests, permutation_tests, resize_tests, row_plan_tests, weighted_tests}) {
    tests();
  }
  return pinfeed::tests::summary();
}
