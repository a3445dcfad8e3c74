// The kernels, on every instruction set that this build has and this CPU can run.
#include "tests/check.h"

void resize_tests();
void round_tests();
void cast_tests();
void color_tests();
void copy_tests();
void fill_tests();
void image_tests();
void layout_tests();
void pack_tests();
void pad_tests();
void permutation_tests();
void row_plan_tests();
void weighted_tests();

int main() {
  resize_tests();
  round_tests();
  cast_tests();
  color_tests();
  copy_tests();
  fill_tests();
  image_tests();
  layout_tests();
  pack_tests();
  pad_tests();
  permutation_tests();
  row_plan_tests();
  weighted_tests();
  return pinfeed::tests::summary();
}
